// IBM/sarama as it speaks to an old broker: BOOTSTRAP TOPIC VERSION CODEC... produces a few records with each codec to
// partition 0, then reads the partition from its beginning and prints every record as offset, key, value.
package main

import (
	"fmt"
	"os"

	"github.com/IBM/sarama"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	brokers, topic := []string{os.Args[1]}, os.Args[2]
	version, err := sarama.ParseKafkaVersion(os.Args[3])
	check(err)
	for _, name := range os.Args[4:] {
		c := sarama.NewConfig()
		c.Version = version
		c.ApiVersionsRequest = false
		c.Producer.Return.Successes = true
		c.Producer.RequiredAcks = sarama.WaitForAll
		check(c.Producer.Compression.UnmarshalText([]byte(name)))
		producer, err := sarama.NewSyncProducer(brokers, c)
		check(err)
		var messages []*sarama.ProducerMessage
		for i := range 20 {
			text := fmt.Sprintf("sarama %s %s %d", os.Args[3], name, i)
			messages = append(messages, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(text), Value: sarama.StringEncoder(text)})
		}
		check(producer.SendMessages(messages))
		check(producer.Close())
	}
	c := sarama.NewConfig()
	c.Version = version
	c.ApiVersionsRequest = false
	client, err := sarama.NewClient(brokers, c)
	check(err)
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	check(err)
	consumer, err := sarama.NewConsumerFromClient(client)
	check(err)
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	check(err)
	for message := range partition.Messages() {
		fmt.Printf("%d\t%s\t%s\n", message.Offset, message.Key, message.Value)
		if message.Offset == end-1 {
			break
		}
	}
}
