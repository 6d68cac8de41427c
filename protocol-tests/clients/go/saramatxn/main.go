// IBM/sarama: the transactions of clients/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/IBM/sarama"

	"barnabas/clients/walk"
)

var (
	source, target, group = os.Args[2], os.Args[3], os.Args[4]
	brokers               = []string{walk.Bootstrap}
)

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Net.MaxOpenRequests = 1
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	return c
}

func connect() sarama.SyncProducer {
	c := config()
	c.Producer.Transaction.ID = "id-" + group
	producer, err := sarama.NewSyncProducer(brokers, c)
	walk.Check(err)
	return producer
}

func produce(producer sarama.SyncProducer, phase string, count int, commit bool) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	for i := range count {
		message := &sarama.ProducerMessage{
			Topic: source, Partition: int32(i % 2), Key: sarama.StringEncoder(fmt.Sprintf("%s-%d", phase, i)), Value: sarama.StringEncoder("value"),
		}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
	}
	if commit {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

func read(topic string, wanted int) {
	consumer, err := sarama.NewConsumer(brokers, config())
	walk.Check(err)
	messages := make(chan *sarama.ConsumerMessage)
	for p := range int32(2) {
		partition, err := consumer.ConsumePartition(topic, p, sarama.OffsetOldest)
		walk.Check(err)
		go func() {
			for m := range partition.Messages() {
				messages <- m
			}
		}()
	}
	for range wanted {
		m := <-messages
		walk.Emit("read", topic, m.Partition, m.Offset, string(m.Key))
	}
}

// handler transforms each message in a transaction of its own; the first one twice.
type handler struct {
	producer sarama.SyncProducer
	aborted  bool
	left     int
	stop     context.CancelFunc
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *handler) transform(m *sarama.ConsumerMessage) {
	for {
		walk.Check(h.producer.BeginTxn())
		_, _, err := h.producer.SendMessage(&sarama.ProducerMessage{
			Topic: target, Partition: m.Partition, Key: sarama.StringEncoder("out-" + string(m.Key)), Value: sarama.ByteEncoder(m.Value),
		})
		walk.Check(err)
		walk.Check(h.producer.AddMessageToTxn(m, group, nil))
		if h.aborted {
			walk.Check(h.producer.CommitTxn())
			return
		}
		walk.Check(h.producer.AbortTxn())
		h.aborted = true
	}
}

var turn = make(chan struct{}, 1)

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, open := <-claim.Messages():
			if !open {
				return nil
			}
			// Partitions share the producer.
			turn <- struct{}{}
			h.transform(m)
			h.left--
			if h.left == 0 {
				h.stop()
			}
			<-turn
		case <-session.Context().Done():
			return nil
		}
	}
}

func transform(producer sarama.SyncProducer, wanted int) {
	consumer, err := sarama.NewConsumerGroup(brokers, group, config())
	walk.Check(err)
	ctx, stop := context.WithCancel(context.Background())
	h := &handler{producer: producer, left: wanted, stop: stop}
	for ctx.Err() == nil {
		if err := consumer.Consume(ctx, []string{source}, h); err != nil && !errors.Is(err, context.Canceled) {
			walk.Check(err)
		}
	}
	walk.Check(consumer.Close())
}

func main() {
	producer := connect()
	walk.Check(produce(producer, "first", 20, true))
	walk.Check(produce(producer, "aborted", 20, false))
	walk.Check(produce(producer, "second", 10, true))
	read(source, 30)
	transform(producer, 30)
	read(target, 30)
	rival := connect()
	err := produce(producer, "fenced", 2, true)
	text := strings.ToLower(fmt.Sprint(err))
	if !errors.Is(err, sarama.ErrProducerFenced) && !errors.Is(err, sarama.ErrInvalidProducerEpoch) && !strings.Contains(text, "epoch") && !strings.Contains(text, "fenced") {
		walk.Check(fmt.Errorf("not fenced: %w", err))
	}
	walk.Emit("fenced")
	walk.Check(produce(rival, "last", 4, true))
	walk.Emit("done")
}
