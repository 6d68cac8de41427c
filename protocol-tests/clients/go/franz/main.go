// franz-go.
package main

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"barnabas/clients/walk"
)

var (
	ctx    = context.Background()
	phases = []string{"none", "gzip", "snappy", "lz4", "zstd"}
	codecs = map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
)

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(walk.Bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	walk.Check(err)
	return made
}

func produce(producer *kgo.Client, phase string) {
	var records []*kgo.Record
	for _, r := range walk.Records(phase) {
		record := &kgo.Record{Topic: walk.Topic, Partition: int32(r.Partition), Key: []byte(r.Key), Value: []byte(r.Value)}
		for _, h := range r.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
		}
		records = append(records, record)
	}
	results := producer.ProduceSync(ctx, records...)
	walk.Check(results.FirstErr())
	for _, result := range results {
		walk.Emit("produced", string(result.Record.Key), result.Record.Partition, result.Record.Offset)
	}
}

// readAll passes on what the consumer polls until it is closed.
func readAll(consumer *kgo.Client, by string, seen *walk.Seen) {
	for {
		fetches := consumer.PollFetches(ctx)
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(_ string, _ int32, err error) { walk.Check(err) })
		fetches.EachRecord(func(r *kgo.Record) {
			var headers []walk.Header
			for _, h := range r.Headers {
				headers = append(headers, walk.Header{Name: h.Key, Value: string(h.Value)})
			}
			seen.Read(by, int(r.Partition), r.Offset, string(r.Key), string(r.Value), headers)
		})
	}
}

func member(name string, seen *walk.Seen) *kgo.Client {
	var mutex sync.Mutex
	owned := map[int32]bool{}
	change := func(partitions []int32, owns bool) {
		mutex.Lock()
		defer mutex.Unlock()
		for _, p := range partitions {
			delete(owned, p)
			if owns {
				owned[p] = true
			}
		}
		list := []int{}
		for p := range owned {
			list = append(list, int(p))
		}
		seen.Assigned(name, list)
	}
	taken := func(owns bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) { change(topics[walk.Topic], owns) }
	}
	consumer := client(kgo.ConsumerGroup(walk.Group), kgo.ConsumeTopics(walk.Topic), kgo.DisableAutoCommit(),
		kgo.ClientID(name), kgo.HeartbeatInterval(200*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(taken(true)), kgo.OnPartitionsRevoked(taken(false)), kgo.OnPartitionsLost(taken(false)))
	go readAll(consumer, name, seen)
	return consumer
}

func main() {
	admin := kadm.NewClient(client())
	_, err := admin.CreateTopic(ctx, walk.Partitions, 1, nil, walk.Topic)
	walk.Check(err)
	for _, phase := range phases {
		producer := client(kgo.ProducerBatchCompression(codecs[phase]))
		produce(producer, phase)
		producer.Close()
	}

	assignment := map[int32]kgo.Offset{}
	for p := range int32(walk.Partitions) {
		assignment[p] = kgo.NewOffset().AtStart()
	}
	byHand := client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{walk.Topic: assignment}))
	seen := walk.NewSeen()
	go readAll(byHand, "assignment", seen)
	seen.WaitRecords(phases...)
	byHand.Close()

	producer := client(kgo.ProducerBatchCompression(kgo.NoCompression()))
	seen = walk.NewSeen()
	a, b := member("a", seen), member("b", seen)
	seen.WaitOwned(2, "a", "b")
	seen.WaitRecords(phases...)
	produce(producer, "together")
	seen.WaitRecords("together")
	walk.Check(b.CommitUncommittedOffsets(ctx))
	walk.Check(a.CommitUncommittedOffsets(ctx))
	a.Close()
	seen.WaitOwned(walk.Partitions, "b")
	produce(producer, "alone")
	seen.WaitRecords("alone")
	walk.Check(b.CommitUncommittedOffsets(ctx))
	committed, err := admin.FetchOffsets(ctx, walk.Group)
	walk.Check(err)
	committed.Each(func(o kadm.OffsetResponse) { walk.Emit("committed", o.Partition, o.At) })

	walk.Restart()
	produce(producer, "after")
	seen.WaitRecords("after")
	walk.Check(b.CommitUncommittedOffsets(ctx))
	b.Close()
	producer.Close()
	_, err = admin.DeleteGroup(ctx, walk.Group)
	walk.Check(err)
	_, err = admin.DeleteTopic(ctx, walk.Topic)
	walk.Check(err)
	for {
		topics, err := admin.ListTopics(ctx)
		walk.Check(err)
		if !topics.Has(walk.Topic) {
			break
		}
	}
	walk.Emit("done")
}
