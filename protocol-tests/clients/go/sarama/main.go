// IBM/sarama.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"barnabas/clients/walk"
)

var (
	phases = []string{"none", "gzip", "snappy", "lz4", "zstd"}
	codecs = []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
	}
	brokers = []string{walk.Bootstrap}
)

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	c.Consumer.Group.Rebalance.Strategy = sarama.NewBalanceStrategyRange()
	c.Consumer.MaxWaitTime = 200 * time.Millisecond
	return c
}

func produce(producer sarama.SyncProducer, phase string) {
	var messages []*sarama.ProducerMessage
	for _, r := range walk.Records(phase) {
		message := &sarama.ProducerMessage{
			Topic: walk.Topic, Partition: int32(r.Partition), Key: sarama.StringEncoder(r.Key), Value: sarama.StringEncoder(r.Value), Metadata: r.Key,
		}
		for _, h := range r.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(h.Name), Value: []byte(h.Value)})
		}
		messages = append(messages, message)
	}
	walk.Check(producer.SendMessages(messages))
	for _, message := range messages {
		walk.Emit("produced", message.Metadata, message.Partition, message.Offset)
	}
}

func newProducer(codec sarama.CompressionCodec) sarama.SyncProducer {
	c := config()
	c.Producer.Compression = codec
	producer, err := sarama.NewSyncProducer(brokers, c)
	walk.Check(err)
	return producer
}

func show(seen *walk.Seen, by string, m *sarama.ConsumerMessage) {
	var headers []walk.Header
	for _, h := range m.Headers {
		headers = append(headers, walk.Header{Name: string(h.Key), Value: string(h.Value)})
	}
	seen.Read(by, int(m.Partition), m.Offset, string(m.Key), string(m.Value), headers)
}

func readByHand() {
	consumer, err := sarama.NewConsumer(brokers, config())
	walk.Check(err)
	seen := walk.NewSeen()
	for p := range int32(walk.Partitions) {
		partition, err := consumer.ConsumePartition(walk.Topic, p, sarama.OffsetOldest)
		walk.Check(err)
		go func() {
			for m := range partition.Messages() {
				show(seen, "assignment", m)
			}
		}()
		defer partition.Close()
	}
	seen.WaitRecords(phases...)
}

// member is sarama's handler of a group session, one for each rebalance.
type member struct {
	name    string
	seen    *walk.Seen
	group   sarama.ConsumerGroup
	stop    context.CancelFunc
	ended   chan struct{}
	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	m.session = session
	m.mutex.Unlock()
	owned := []int{}
	for _, p := range session.Claims()[walk.Topic] {
		owned = append(owned, int(p))
	}
	m.seen.Assigned(m.name, owned)
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			// Marked before it is shown: a commit that follows the showing must hold it.
			session.MarkMessage(message, "")
			show(m.seen, m.name, message)
		case <-session.Context().Done():
			return nil
		}
	}
}

func join(name string, seen *walk.Seen) *member {
	c := config()
	c.ClientID = name
	group, err := sarama.NewConsumerGroup(brokers, walk.Group, c)
	walk.Check(err)
	ctx, stop := context.WithCancel(context.Background())
	m := &member{name: name, seen: seen, group: group, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{walk.Topic}, m); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) && ctx.Err() == nil {
				walk.Emit("note", name, err)
			}
		}
	}()
	return m
}

func (m *member) commit() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session.Commit()
}

func (m *member) close() {
	m.stop()
	<-m.ended
	walk.Check(m.group.Close())
}

func main() {
	admin, err := sarama.NewClusterAdmin(brokers, config())
	walk.Check(err)
	walk.Check(admin.CreateTopic(walk.Topic, &sarama.TopicDetail{NumPartitions: walk.Partitions, ReplicationFactor: 1}, false))
	for i, phase := range phases {
		producer := newProducer(codecs[i])
		produce(producer, phase)
		walk.Check(producer.Close())
	}
	readByHand()

	producer := newProducer(sarama.CompressionNone)
	seen := walk.NewSeen()
	a, b := join("a", seen), join("b", seen)
	seen.WaitOwned(2, "a", "b")
	seen.WaitRecords(phases...)
	produce(producer, "together")
	seen.WaitRecords("together")
	b.commit()
	a.commit()
	a.close()
	seen.WaitOwned(walk.Partitions, "b")
	produce(producer, "alone")
	seen.WaitRecords("alone")
	b.commit()
	offsets, err := admin.ListConsumerGroupOffsets(walk.Group, map[string][]int32{walk.Topic: {0, 1, 2, 3}})
	walk.Check(err)
	for p := range int32(walk.Partitions) {
		walk.Emit("committed", p, offsets.GetBlock(walk.Topic, p).Offset)
	}

	walk.Restart()
	produce(producer, "after")
	seen.WaitRecords("after")
	b.commit()
	b.close()
	walk.Check(producer.Close())
	// The connections from before the restart are dead, and not every call of this library replaces them.
	admin.Close()
	admin, err = sarama.NewClusterAdmin(brokers, config())
	walk.Check(err)
	walk.Check(admin.DeleteConsumerGroup(walk.Group))
	walk.Check(admin.DeleteTopic(walk.Topic))
	for {
		topics, err := admin.ListTopics()
		walk.Check(err)
		if _, exists := topics[walk.Topic]; !exists {
			break
		}
	}
	walk.Emit("done")
}
