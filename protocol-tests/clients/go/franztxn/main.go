// franz-go: the transactions of clients/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"barnabas/clients/walk"
)

var (
	ctx                   = context.Background()
	source, target, group = os.Args[2], os.Args[3], os.Args[4]
)

func connect() *kgo.Client {
	client, err := kgo.NewClient(kgo.SeedBrokers(walk.Bootstrap), kgo.TransactionalID("id-"+group),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	walk.Check(err)
	// The id is fetched with the first transaction: the earlier producer has to have it before the later one.
	_, _, err = client.ProducerID(ctx)
	walk.Check(err)
	return client
}

func produce(client *kgo.Client, phase string, count int, commit bool) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	var records []*kgo.Record
	for i := range count {
		key := []byte(fmt.Sprintf("%s-%d", phase, i))
		records = append(records, &kgo.Record{Topic: source, Partition: int32(i % 2), Key: key, Value: []byte("value")})
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

func read(topic string, wanted int) {
	client, err := kgo.NewClient(kgo.SeedBrokers(walk.Bootstrap), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	walk.Check(err)
	for seen := 0; seen < wanted; {
		fetches := client.PollFetches(ctx)
		walk.Check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			walk.Emit("read", topic, r.Partition, r.Offset, string(r.Key))
			seen++
		})
	}
	client.Close()
}

func transform(wanted int) {
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(walk.Bootstrap), kgo.TransactionalID("transform-"+group),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(source), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequireStableFetchOffsets())
	walk.Check(err)
	aborted := false
	for done := 0; done < wanted; {
		fetches := session.PollFetches(ctx)
		walk.Check(fetches.Err())
		walk.Check(session.Begin())
		count := 0
		fetches.EachRecord(func(r *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: target, Partition: r.Partition, Key: []byte("out-" + string(r.Key)), Value: r.Value}, nil)
			count++
		})
		committed, err := session.End(ctx, kgo.TransactionEndTry(aborted))
		walk.Check(err)
		// The session goes back to where it was by itself.
		if committed {
			done += count
		}
		aborted = true
	}
	session.Close()
}

func main() {
	producer := connect()
	walk.Check(produce(producer, "first", 20, true))
	walk.Check(produce(producer, "aborted", 20, false))
	walk.Check(produce(producer, "second", 10, true))
	read(source, 30)
	transform(30)
	read(target, 30)
	rival := connect()
	err := produce(producer, "fenced", 2, true)
	if !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
		walk.Check(fmt.Errorf("not fenced: %w", err))
	}
	walk.Emit("fenced")
	walk.Check(produce(rival, "last", 4, true))
	walk.Emit("done")
}
