// franz-go: the steady work of clients/README.md.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"barnabas/clients/walk"
)

var (
	ctx                         = context.Background()
	plain, transactional, group = os.Args[2], os.Args[3], os.Args[4]
	stopped, enough             atomic.Bool
)

func connect(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(walk.Bootstrap, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.RequestTimeoutOverhead(5*time.Second))...)
	walk.Check(err)
	return client
}

func produce() {
	client := connect(kgo.ProducerLinger(2 * time.Millisecond))
	for number := 0; !stopped.Load(); number++ {
		value := fmt.Sprintf("p-%d", number)
		record := &kgo.Record{Topic: plain, Partition: int32(number % 3), Value: []byte(value)}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			walk.Check(err)
			walk.Emit("acked", value)
		})
		time.Sleep(5 * time.Millisecond)
	}
	walk.Check(client.Flush(ctx))
	client.Close()
}

func transact() {
	client := connect(kgo.TransactionalID("steady-"+group), kgo.TransactionTimeout(time.Minute))
	for number := 0; !stopped.Load(); number += 5 {
		walk.Check(client.BeginTransaction())
		var records []*kgo.Record
		for i := range 5 {
			value := fmt.Sprintf("t-%d", number+i)
			records = append(records, &kgo.Record{Topic: transactional, Partition: int32((number + i) % 3), Value: []byte(value)})
		}
		failed := client.ProduceSync(ctx, records...).FirstErr()
		commit := kgo.TransactionEndTry(failed == nil)
		err := client.EndTransaction(ctx, commit)
		for attempt := 0; err != nil && kerr.IsRetriable(err) && attempt < 100; attempt++ {
			time.Sleep(100 * time.Millisecond)
			err = client.EndTransaction(ctx, commit)
		}
		// The library has lost track and goes on under another epoch: what became of the transaction is open.
		lost := errors.Is(err, kerr.InvalidTxnState) || errors.Is(err, kerr.OperationNotAttempted)
		if err != nil && !lost {
			walk.Check(err)
		}
		if err == nil && failed == nil {
			walk.Emit("committed", number, number+4)
		} else if err == nil {
			walk.Emit("aborted", number, number+4)
		}
		time.Sleep(20 * time.Millisecond)
	}
	client.Close()
}

func read(topic, kind string, options ...kgo.Opt) {
	client := connect(append(options, kgo.ConsumerGroup(group+"-"+kind), kgo.ConsumeTopics(topic), kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(time.Second), kgo.AutoCommitInterval(200*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	for !enough.Load() {
		waiting, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := client.PollFetches(waiting)
		cancel()
		fetches.EachRecord(func(r *kgo.Record) { walk.Emit(kind, string(r.Value)) })
	}
	client.Close()
}

func start(work func()) *sync.WaitGroup {
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		work()
	}()
	return &done
}

func main() {
	producing, transacting := start(produce), start(transact)
	reading := start(func() { read(plain, "read") })
	readingCommitted := start(func() { read(transactional, "readtxn", kgo.FetchIsolationLevel(kgo.ReadCommitted())) })
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	stopped.Store(true)
	producing.Wait()
	transacting.Wait()
	walk.Emit("stopped")
	in.Scan()
	enough.Store(true)
	reading.Wait()
	readingCommitted.Wait()
	walk.Emit("done")
}
