// segmentio/kafka-go.
package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"barnabas/clients/walk"
)

var (
	ctx    = context.Background()
	phases = []string{"none", "gzip", "snappy", "lz4", "zstd"}
	codecs = []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	client = &kafka.Client{Addr: kafka.TCP(walk.Bootstrap), Timeout: 30 * time.Second}
)

// byNumber sends a message to the partition that its header "number" gives; the library keeps the choice in the balancer.
type byNumber struct{}

func (byNumber) Balance(message kafka.Message, partitions ...int) int {
	number, err := strconv.Atoi(string(message.Headers[1].Value))
	walk.Check(err)
	return number % len(partitions)
}

func newWriter(codec kafka.Compression) *kafka.Writer {
	return &kafka.Writer{
		Addr: kafka.TCP(walk.Bootstrap), Topic: walk.Topic, Balancer: byNumber{}, RequiredAcks: kafka.RequireAll,
		Compression: codec, BatchTimeout: 10 * time.Millisecond, MaxAttempts: 100, WriteTimeout: time.Minute, ReadTimeout: time.Minute,
		Completion: func(messages []kafka.Message, err error) {
			walk.Check(err)
			for _, m := range messages {
				walk.Emit("produced", string(m.Key), m.Partition, m.Offset)
			}
		},
	}
}

func produce(writer *kafka.Writer, phase string) {
	var messages []kafka.Message
	for _, r := range walk.Records(phase) {
		message := kafka.Message{Key: []byte(r.Key), Value: []byte(r.Value)}
		for _, h := range r.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: h.Name, Value: []byte(h.Value)})
		}
		messages = append(messages, message)
	}
	walk.Check(writer.WriteMessages(ctx, messages...))
}

func show(seen *walk.Seen, by string, partition int, offset int64, key, value []byte, list []kafka.Header) {
	var headers []walk.Header
	for _, h := range list {
		headers = append(headers, walk.Header{Name: h.Key, Value: string(h.Value)})
	}
	seen.Read(by, partition, offset, string(key), string(value), headers)
}

func readByHand() {
	seen := walk.NewSeen()
	for p := range walk.Partitions {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{walk.Bootstrap}, Topic: walk.Topic, Partition: p, MaxWait: 200 * time.Millisecond,
		})
		defer reader.Close()
		go func() {
			for {
				m, err := reader.ReadMessage(ctx)
				if err != nil {
					return
				}
				show(seen, "assignment", m.Partition, m.Offset, m.Key, m.Value, m.Headers)
			}
		}()
	}
	seen.WaitRecords(phases...)
}

// member is one consumer group member on the library's ConsumerGroup, which tells assignments and generations.
type member struct {
	name    string
	seen    *walk.Seen
	group   *kafka.ConsumerGroup
	commits chan chan error
	ended   chan struct{}
}

func join(name string, seen *walk.Seen) *member {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: walk.Group, Brokers: []string{walk.Bootstrap}, Topics: []string{walk.Topic}, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 200 * time.Millisecond, JoinGroupBackoff: 200 * time.Millisecond,
	})
	walk.Check(err)
	m := &member{name, seen, group, make(chan chan error), make(chan struct{})}
	go m.run()
	return m
}

func (m *member) run() {
	defer close(m.ended)
	for {
		generation, err := m.group.Next(ctx)
		if errors.Is(err, kafka.ErrGroupClosed) {
			return
		}
		if err != nil {
			walk.Emit("note", m.name, err)
			continue
		}
		owned := []int{}
		progress := make(chan kafka.Message)
		for _, assignment := range generation.Assignments[walk.Topic] {
			owned = append(owned, assignment.ID)
			generation.Start(func(ctx context.Context) { m.read(ctx, assignment, progress) })
		}
		generation.Start(func(ctx context.Context) { m.follow(ctx, generation, progress) })
		m.seen.Assigned(m.name, owned)
	}
}

func (m *member) read(ctx context.Context, assignment kafka.PartitionAssignment, progress chan<- kafka.Message) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{walk.Bootstrap}, Topic: walk.Topic, Partition: assignment.ID, MaxWait: 200 * time.Millisecond,
	})
	defer reader.Close()
	walk.Check(reader.SetOffset(assignment.Offset))
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return
		}
		select {
		case progress <- message:
		case <-ctx.Done():
			return
		}
	}
}

// follow notes the progress of one generation and commits it when it is asked to.
func (m *member) follow(ctx context.Context, generation *kafka.Generation, progress <-chan kafka.Message) {
	next := map[int]int64{}
	for {
		select {
		case <-ctx.Done():
			return
		case message := <-progress:
			next[message.Partition] = message.Offset + 1
			show(m.seen, m.name, message.Partition, message.Offset, message.Key, message.Value, message.Headers)
		case answer := <-m.commits:
			answer <- generation.CommitOffsets(map[string]map[int]int64{walk.Topic: next})
		}
	}
}

func (m *member) commit() {
	again(func() error {
		answer := make(chan error)
		m.commits <- answer
		return <-answer
	})
}

// again repeats what fails: the library's connections end with the broker's restart, and it does not repeat what they
// take along.
func again(call func() error) {
	var failed error
	for attempt := 0; attempt < 50; attempt++ {
		if failed = call(); failed == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	walk.Check(failed)
}

func (m *member) close() {
	walk.Check(m.group.Close())
	<-m.ended
}

func committed() {
	answer, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: walk.Group, Topics: map[string][]int{walk.Topic: {0, 1, 2, 3}},
	})
	walk.Check(err)
	walk.Check(answer.Error)
	for _, p := range answer.Topics[walk.Topic] {
		walk.Emit("committed", p.Partition, p.CommittedOffset)
	}
}

func deleteTopic() {
	var answer *kafka.DeleteTopicsResponse
	again(func() (err error) {
		answer, err = client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{walk.Topic}})
		return err
	})
	walk.Check(answer.Errors[walk.Topic])
	for exists := true; exists; {
		metadata, err := client.Metadata(ctx, &kafka.MetadataRequest{})
		walk.Check(err)
		exists = false
		for _, topic := range metadata.Topics {
			exists = exists || topic.Name == walk.Topic
		}
	}
}

func main() {
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: walk.Topic, NumPartitions: walk.Partitions, ReplicationFactor: 1}},
	})
	walk.Check(err)
	walk.Check(created.Errors[walk.Topic])
	for i, phase := range phases {
		writer := newWriter(codecs[i])
		produce(writer, phase)
		walk.Check(writer.Close())
	}
	readByHand()

	writer := newWriter(0)
	seen := walk.NewSeen()
	a, b := join("a", seen), join("b", seen)
	seen.WaitOwned(2, "a", "b")
	seen.WaitRecords(phases...)
	produce(writer, "together")
	seen.WaitRecords("together")
	b.commit()
	a.commit()
	a.close()
	seen.WaitOwned(walk.Partitions, "b")
	produce(writer, "alone")
	seen.WaitRecords("alone")
	b.commit()
	committed()

	walk.Restart()
	produce(writer, "after")
	seen.WaitRecords("after")
	b.commit()
	b.close()
	walk.Check(writer.Close())
	var deleted *kafka.DeleteGroupsResponse
	again(func() (err error) {
		deleted, err = client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{walk.Group}})
		return err
	})
	walk.Check(deleted.Errors[walk.Group])
	deleteTopic()
	walk.Emit("done")
}
