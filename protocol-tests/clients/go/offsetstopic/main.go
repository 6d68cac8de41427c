// franz-go: partition 0 of the offsets topic to its end, decoded with the types of kmsg, as kminion decodes it.
//
//	offsetstopic BOOTSTRAP
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const topic = "__consumer_offsets"

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// offset VERSION GROUP TOPIC PARTITION: and the value, which is VERSION OFFSET EPOCH METADATA and whether it says when it
// expires, or "deleted".
func printOffset(record *kgo.Record) {
	key := kmsg.NewOffsetCommitKey()
	check(key.ReadFrom(record.Key))
	fmt.Printf("offset %d %s %s %d: ", key.Version, key.Group, key.Topic, key.Partition)
	if record.Value == nil {
		fmt.Println("deleted")
		return
	}
	value := kmsg.NewOffsetCommitValue()
	check(value.ReadFrom(record.Value))
	fmt.Printf("%d %d %d %q %t\n", value.Version, value.Offset, value.LeaderEpoch, value.Metadata, value.ExpireTimestamp > 0)
}

// group VERSION GROUP: and the value, which is VERSION TYPE GENERATION PROTOCOL and the members with what they were assigned,
// or "deleted".
func printGroup(record *kgo.Record) {
	key := kmsg.NewGroupMetadataKey()
	check(key.ReadFrom(record.Key))
	fmt.Printf("group %d %s: ", key.Version, key.Group)
	if record.Value == nil {
		fmt.Println("deleted")
		return
	}
	value := kmsg.NewGroupMetadataValue()
	check(value.ReadFrom(record.Value))
	fmt.Printf("%d %s %d", value.Version, value.ProtocolType, value.Generation)
	if value.Protocol != nil {
		fmt.Printf(" %s", *value.Protocol)
	}
	for _, member := range value.Members {
		subscription, assignment := kmsg.NewConsumerMemberMetadata(), kmsg.NewConsumerMemberAssignment()
		check(subscription.ReadFrom(member.Subscription))
		check(assignment.ReadFrom(member.Assignment))
		fmt.Printf(" %s %s %v %v", member.ClientID, member.ClientHost, subscription.Topics, assignment.Topics)
	}
	fmt.Println()
}

func main() {
	ctx := context.Background()
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	check(err)
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	check(err)
	end, _ := ends.Lookup(topic, 0)
	check(end.Err)
	for next := int64(0); next < end.Offset; {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			next = record.Offset + 1
			switch binary.BigEndian.Uint16(record.Key) {
			case 0, 1:
				printOffset(record)
			case 2:
				printGroup(record)
			default:
				fmt.Println("unknown", record.Key)
			}
		})
	}
}
