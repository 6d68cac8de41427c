// Package walk has the records and events that clients/README.md tells of.
package walk

import (
	"bufio"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
)

const (
	Partitions = 4
	Count      = 40
)

var Bootstrap, Topic, Group = os.Args[1], os.Args[2], os.Args[3]

type Header struct{ Name, Value string }

type Record struct {
	Partition  int
	Key, Value string
	Headers    []Header
}

func Records(phase string) []Record {
	records := make([]Record, Count)
	for i := range records {
		key := fmt.Sprintf("%s-%d", phase, i)
		headers := []Header{{"phase", phase}, {"number", fmt.Sprint(i)}}
		records[i] = Record{i % Partitions, key, key + ":" + strings.Repeat("0123456789", 20), headers}
	}
	return records
}

var output sync.Mutex

func Emit(fields ...any) {
	text := make([]string, len(fields))
	for i, field := range fields {
		text[i] = fmt.Sprint(field)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(strings.Join(text, "\t"))
}

func Check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		panic(err)
	}
}

func Restart() {
	Emit("restart")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	Check(err)
}

// Seen is what the readers have seen and own; the main goroutine waits on it.
type Seen struct {
	mutex   sync.Mutex
	changed *sync.Cond
	keys    map[string]bool
	owned   map[string][]int
}

func NewSeen() *Seen {
	seen := &Seen{keys: map[string]bool{}, owned: map[string][]int{}}
	seen.changed = sync.NewCond(&seen.mutex)
	return seen
}

func (s *Seen) Read(by string, partition int, offset int64, key, value string, headers []Header) {
	text := make([]string, len(headers))
	for i, header := range headers {
		text[i] = header.Name + "=" + header.Value
	}
	Emit("read", by, partition, offset, key, value, strings.Join(text, ","))
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.keys[key] = true
	s.changed.Broadcast()
}

func (s *Seen) Assigned(member string, partitions []int) {
	sort.Ints(partitions)
	Emit("assigned", member, strings.Join(strings.Fields(strings.Trim(fmt.Sprint(partitions), "[]")), ","))
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.owned[member] = partitions
	s.changed.Broadcast()
}

// WaitRecords waits until every record of the phases was read by somebody.
func (s *Seen) WaitRecords(phases ...string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for !s.hasAll(phases) {
		s.changed.Wait()
	}
}

func (s *Seen) hasAll(phases []string) bool {
	for _, phase := range phases {
		for i := range Count {
			if !s.keys[fmt.Sprintf("%s-%d", phase, i)] {
				return false
			}
		}
	}
	return true
}

// WaitOwned waits until each of the members owns that many partitions.
func (s *Seen) WaitOwned(count int, members ...string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for {
		reached := true
		for _, member := range members {
			reached = reached && len(s.owned[member]) == count
		}
		if reached {
			return
		}
		s.changed.Wait()
	}
}
