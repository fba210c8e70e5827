package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Step `group`: three processes, one of which is killed.

const groupWait = 90 * time.Second

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

// What a member prints: Assigned whenever that changes, Read for each record once it is committed.
type event struct {
	member   int
	Assigned *[]int32  `json:"assigned,omitempty"`
	Read     *[2]int64 `json:"read,omitempty"`
}

type process struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	ended   chan struct{}
}

type members struct {
	processes []process
	assigned  [][]int32
	read      map[[2]int64]bool
	events    chan event
}

func (m *members) start(arguments ...string) error {
	command := exec.Command(os.Args[0], arguments...)
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	number := len(m.processes)
	ended := make(chan struct{})
	m.processes = append(m.processes, process{command, stdin, ended})
	m.assigned = append(m.assigned, nil)
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			said := event{member: number}
			if err := json.Unmarshal(lines.Bytes(), &said); err == nil {
				m.events <- said
			} else {
				fmt.Fprintln(os.Stderr, "a member said", lines.Text())
			}
		}
		_ = command.Wait() // A killed member's end is an error, and meant.
	}()
	return nil
}

func (m *members) until(what string, reached func() bool) error {
	deadline := time.After(groupWait)
	for !reached() {
		select {
		case said := <-m.events:
			if said.Assigned != nil {
				m.assigned[said.member] = *said.Assigned
			}
			if said.Read != nil {
				m.read[*said.Read] = true
			}
		case <-deadline:
			return fmt.Errorf("waiting for %s: assigned %v, %d records read", what, m.assigned, len(m.read))
		}
	}
	return nil
}

func (m *members) eachHas(count int, numbers ...int) func() bool {
	return func() bool {
		all := map[int32]bool{}
		for _, number := range numbers {
			if len(m.assigned[number]) != count {
				return false
			}
			for _, partition := range m.assigned[number] {
				all[partition] = true
			}
		}
		return len(all) == count*len(numbers)
	}
}

func (m *members) hasRead(count int) func() bool {
	return func() bool { return len(m.read) == count }
}

func (m *members) leave(number int) error {
	m.processes[number].stdin.Close()
	select {
	case <-m.processes[number].ended:
		return nil
	case <-time.After(groupWait):
		return errors.New("a member does not leave")
	}
}

// Plays the step; produceTenEach produces ten records to each of the six partitions.
func threeMembers(arguments []string, produceTenEach func(round int) error) (any, error) {
	m := &members{read: map[[2]int64]bool{}, events: make(chan event, 1000)}
	defer func() {
		for _, p := range m.processes {
			_ = p.command.Process.Kill() // It may have ended already.
		}
	}()
	for range 3 {
		if err := m.start(arguments...); err != nil {
			return nil, err
		}
	}
	for _, act := range []func() error{
		func() error { return m.until("two partitions each", m.eachHas(2, 0, 1, 2)) },
		func() error { return produceTenEach(1) },
		func() error { return m.until("sixty records", m.hasRead(60)) },
		func() error { return m.processes[0].command.Process.Kill() },
		func() error { return produceTenEach(2) },
		func() error { return m.until("three partitions each", m.eachHas(3, 1, 2)) },
		func() error { return m.until("all records", m.hasRead(120)) },
		func() error { return m.leave(1) },
		func() error { return m.until("all partitions", m.eachHas(6, 2)) },
		func() error { return m.leave(2) },
	} {
		if err := act(); err != nil {
			return nil, err
		}
	}
	return map[string]any{
		"each": []int{2, 2, 2}, "after_kill": []int{3, 3}, "after_leave": []int{6}, "read": len(m.read),
	}, nil
}

// One member, until its standard input ends.
func member(bootstrap, topic, group, assignor string) error {
	var lock sync.Mutex
	owned := []int32{}
	changed := func(change func()) {
		lock.Lock()
		defer lock.Unlock()
		change()
		slices.Sort(owned)
		say(event{Assigned: &owned})
	}
	lost := func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
		changed(func() {
			owned = slices.DeleteFunc(owned, func(p int32) bool { return slices.Contains(gone[topic], p) })
		})
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.Balancers(balancers[assignor]),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
			changed(func() { owned = append(owned, added[topic]...) })
		}),
		kgo.OnPartitionsRevoked(lost),
		kgo.OnPartitionsLost(lost),
	)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // Its end is the sign, however it comes.
		stop()
	}()
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, 10)
		for _, record := range fetches.Records() {
			// A rebalance waits until the polled records are dealt with.
			if err := client.CommitRecords(context.Background(), record); err != nil {
				fmt.Fprintln(os.Stderr, "commit:", err)
				client.SetOffsets(map[string]map[int32]kgo.EpochOffset{
					topic: {record.Partition: {Epoch: record.LeaderEpoch, Offset: record.Offset}},
				})
				break
			}
			say(event{Read: &[2]int64{int64(record.Partition), record.Offset}})
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	return nil
}

func say(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
