// The scenario of ../SCENARIO.md with franz-go: `scenario BOOTSTRAP PREFIX`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const wait = 30 * time.Second

type object = map[string]any

type scenario struct {
	bootstrap, prefix, main, acks string
	admin                         *kadm.Client
	failed                        bool
}

func main() {
	if os.Args[1] == "member" {
		if err := member(os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	s := &scenario{bootstrap: os.Args[1], prefix: os.Args[2], main: os.Args[2] + "-records", acks: os.Args[2] + "-acks"}
	client, err := s.client()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s.admin = kadm.NewClient(client)
	s.run()
	client.Close()
	if s.failed {
		os.Exit(1)
	}
}

func (s *scenario) run() {
	s.step("connect", s.connect)
	s.step("create-topics", s.createTopics)
	s.step("metadata", s.metadata)
	for _, codec := range codecs {
		s.step("produce/"+codec, func(ctx context.Context) (any, error) { return s.produce(ctx, codec, false) })
		s.step("produce/"+codec+"/idempotent", func(ctx context.Context) (any, error) { return s.produce(ctx, codec, true) })
	}
	s.step("consume", s.consume)
	s.step("times", s.times)
	s.step("seek-time", s.seekTime)
	s.step("seek-into-batch", s.seekIntoBatch)
	s.step("small-fetches", s.smallFetches)
	s.step("acks", s.produceAcks)
	s.step("commit-metadata", s.commitMetadata)
	s.step("resume", s.resume)
	s.step("group", s.groups)
	s.step("group-admin", s.groupAdmin)
	s.step("delete-records", s.deleteRecords)
	s.step("create-partitions", s.createPartitions)
	s.step("configs", s.configs)
	s.step("errors", s.errors)
	s.step("transactions", s.transactions)
	s.step("group-protocol-consumer", s.groupProtocolConsumer)
	s.step("delete-topics", s.deleteTopics)
}

// One step's failure must not hide the next one's.
func (s *scenario) step(name string, run func(context.Context) (any, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	result, err := run(ctx)
	if err != nil {
		s.failed = true
		say(object{"step": name, "failed": err.Error()})
		return
	}
	say(object{"step": name, "result": result})
}

func (s *scenario) client(options ...kgo.Opt) (*kgo.Client, error) {
	own := []kgo.Opt{kgo.SeedBrokers(s.bootstrap), kgo.RetryTimeout(wait), kgo.MetadataMinAge(100 * time.Millisecond)}
	return kgo.NewClient(append(own, options...)...)
}

// 0, or Kafka's number of the error.
func code(err error) any {
	var kafka *kerr.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &kafka):
		return kafka.Code
	default:
		return err.Error()
	}
}

// The offsets that the records got, in one batch if they are of one partition.
func (s *scenario) send(ctx context.Context, records []*kgo.Record, options ...kgo.Opt) ([]int64, error) {
	own := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(200 * time.Millisecond)}
	client, err := s.client(append(own, options...)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var offsets []int64
	for _, result := range client.ProduceSync(ctx, records...) {
		if result.Err != nil {
			return nil, result.Err
		}
		offsets = append(offsets, result.Record.Offset)
	}
	return offsets, nil
}

func ten(topic string, partition int32, text string) []*kgo.Record {
	var records []*kgo.Record
	for i := range 10 {
		records = append(records, &kgo.Record{
			Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "%s-%d", text, i),
			Timestamp: time.UnixMilli(base + int64(i)),
		})
	}
	return records
}

// The records of a partition from start to the end of the log.
func (s *scenario) read(ctx context.Context, topic string, partition int32, start kgo.Offset, options ...kgo.Opt) ([]*kgo.Record, error) {
	ends, err := s.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	end, ok := ends.Lookup(topic, partition)
	switch {
	case ends.Error() != nil:
		return nil, ends.Error()
	case !ok:
		return nil, fmt.Errorf("%s has no partition %d", topic, partition)
	}
	from := map[string]map[int32]kgo.Offset{topic: {partition: start}}
	// Control records are shown, so that the position reaches the end behind a transaction's marker too.
	client, err := s.client(append([]kgo.Opt{kgo.ConsumePartitions(from), kgo.KeepControlRecords()}, options...)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for next := int64(0); next < end.Offset; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			next = record.Offset + 1
			if !record.Attrs.IsControl() {
				records = append(records, record)
			}
		}
	}
	return records, nil
}

func at(offset int64) kgo.Offset { return kgo.NewOffset().At(offset) }

func summary(records []*kgo.Record, err error) (object, error) {
	if err != nil {
		return nil, err
	}
	var first any
	if len(records) > 0 {
		first = records[0].Offset
	}
	return object{"first": first, "count": len(records), "digest": digest(records)}, nil
}

func (s *scenario) connect(ctx context.Context) (any, error) {
	found, err := s.admin.BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	controller := slices.ContainsFunc(found.Brokers, func(b kadm.BrokerDetail) bool { return b.NodeID == found.Controller })
	return object{"brokers": len(found.Brokers), "controller": controller, "cluster_id": found.Cluster != ""}, nil
}

func text(value string) *string { return &value }

var kept = map[string]*string{"retention.ms": text("-1")}

func (s *scenario) createTopics(ctx context.Context) (any, error) {
	create := func(name string, partitions int32, replicas int16, configs map[string]*string) any {
		_, err := s.admin.CreateTopic(ctx, partitions, replicas, configs, name)
		return code(err)
	}
	validated, err := s.admin.ValidateCreateTopics(ctx, 1, 1, nil, s.prefix+"-validated")
	if err != nil {
		return nil, err
	}
	codes := object{
		"main":       create(s.main, 10, 1, kept),
		"again":      create(s.main, 10, 1, kept),
		"name":       create(s.prefix+"/slash", 1, 1, nil),
		"partitions": create(s.prefix+"-partitions", 0, 1, nil),
		"replicas":   create(s.prefix+"-replicas", 1, 3, nil),
		"config":     create(s.prefix+"-config", 1, 1, map[string]*string{"no.such.config": text("1")}),
		"validated":  code(validated[s.prefix+"-validated"].Err),
		"acks":       create(s.acks, -1, -1, kept),
	}
	codes["topics"], err = s.ownTopics(ctx, func(names []string) bool { return slices.Contains(names, "-acks") })
	return codes, err
}

// Our topics without the prefix; Kafka answers a change before its metadata has followed, and franz-go keeps what it has
// heard of topics for a while.
func (s *scenario) ownTopics(ctx context.Context, awaited func([]string) bool) ([]string, error) {
	for {
		topics, err := s.admin.ListTopics(ctx)
		if err != nil {
			return nil, err
		}
		names := []string{}
		for _, topic := range topics.Sorted() {
			if own, ok := strings.CutPrefix(topic.Topic, s.prefix); ok && topic.Err == nil {
				names = append(names, own)
			}
		}
		if awaited(names) || ctx.Err() != nil {
			return names, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *scenario) metadata(ctx context.Context) (any, error) {
	topics, err := s.admin.ListTopics(ctx, s.main)
	if err != nil {
		return nil, err
	}
	topic := topics[s.main]
	leaders, replicas, inSync := true, map[int]bool{}, map[int]bool{}
	for _, partition := range topic.Partitions {
		leaders = leaders && partition.Leader >= 0 && partition.LeaderEpoch == 0
		replicas[len(partition.Replicas)] = true
		inSync[len(partition.ISR)] = true
	}
	return object{
		"partitions": topic.Partitions.Numbers(), "leaders": leaders, "replicas": numbers(replicas),
		"in_sync": numbers(inSync), "topic_id": topic.ID != kadm.TopicID{}, "internal": topic.IsInternal,
	}, topic.Err
}

func numbers(set map[int]bool) []int {
	list := []int{}
	for number := range set {
		list = append(list, number)
	}
	sort.Ints(list)
	return list
}

func (s *scenario) produce(ctx context.Context, codec string, idempotent bool) (any, error) {
	compression := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	partition := int32(2 * slices.Index(codecs, codec))
	options := []kgo.Opt{kgo.ProducerBatchCompression(compression[codec])}
	if idempotent {
		partition++
	} else {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	offsets, err := s.send(ctx, twenty(s.main, partition, codec), options...)
	if err != nil {
		return nil, err
	}
	return object{
		"partition": partition, "offsets": []int64{offsets[0], offsets[19]}, "in_order": slices.IsSorted(offsets),
	}, nil
}

func (s *scenario) summaries(ctx context.Context, partitions []int32, start kgo.Offset, options ...kgo.Opt) (any, error) {
	found := object{}
	for _, partition := range partitions {
		read, err := summary(s.read(ctx, s.main, partition, start, options...))
		if err != nil {
			return nil, err
		}
		found[strconv.Itoa(int(partition))] = read
	}
	return found, nil
}

func (s *scenario) consume(ctx context.Context) (any, error) {
	return s.summaries(ctx, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, at(0))
}

func (s *scenario) times(ctx context.Context) (any, error) {
	asked := []int64{base - 1, base, base + 2500, late + 1, base + 13000, base + 19000, base + 19001}
	perTime := [][]int64{}
	list := func(listed kadm.ListedOffsets, err error) (func(int32) kadm.ListedOffset, error) {
		if err == nil {
			err = listed.Error()
		}
		return func(partition int32) kadm.ListedOffset { return listed[s.main][partition] }, err
	}
	for _, time := range asked {
		listed, err := list(s.admin.ListOffsetsAfterMilli(ctx, time, s.main))
		if err != nil {
			return nil, err
		}
		offsets := []int64{}
		for partition := range int32(10) {
			offset := listed(partition)
			// kadm puts the end in the place of no offset; the time that it gives then is none.
			if offset.Timestamp < 0 {
				offset.Offset = -1
			}
			offsets = append(offsets, offset.Offset)
		}
		perTime = append(perTime, offsets)
	}
	greatest, err := list(s.admin.ListMaxTimestampOffsets(ctx, s.main))
	if err != nil {
		return nil, err
	}
	starts, err := list(s.admin.ListStartOffsets(ctx, s.main))
	if err != nil {
		return nil, err
	}
	ends, err := list(s.admin.ListCommittedOffsets(ctx, s.main))
	if err != nil {
		return nil, err
	}
	found := object{}
	for partition := int32(0); partition < 10; partition += 2 {
		offsets := []int64{}
		for _, of := range perTime {
			offsets = append(offsets, of[partition])
		}
		most := greatest(partition)
		found[strconv.Itoa(int(partition))] = object{
			"first_at_or_after": offsets, "greatest": []int64{most.Offset, most.Timestamp},
			"watermarks": []int64{starts(partition).Offset, ends(partition).Offset},
		}
	}
	return found, nil
}

func (s *scenario) seekTime(ctx context.Context) (any, error) {
	return summary(s.read(ctx, s.main, 2, kgo.NewOffset().AfterMilli(late+1)))
}

func (s *scenario) seekIntoBatch(ctx context.Context) (any, error) {
	return s.summaries(ctx, []int32{0, 2, 4, 6, 8}, at(7))
}

func (s *scenario) smallFetches(ctx context.Context) (any, error) {
	return s.summaries(ctx, []int32{0, 2}, at(0), kgo.FetchMaxBytes(200), kgo.FetchMaxPartitionBytes(200))
}

func (s *scenario) produceAcks(ctx context.Context) (any, error) {
	found := object{}
	for level, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck()} {
		records := ten(s.acks, 0, fmt.Sprintf("acks-%d", level))
		if _, err := s.send(ctx, records, kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite()); err != nil {
			return nil, err
		}
		// Nothing tells a producer without acknowledgements that its records are there.
		for {
			ends, err := s.admin.ListEndOffsets(ctx, s.acks)
			if err != nil {
				return nil, err
			}
			if ends[s.acks][0].Offset == int64(10*(level+1)) {
				break
			}
		}
		read, err := summary(s.read(ctx, s.acks, 0, at(0)))
		if err != nil {
			return nil, err
		}
		found[strconv.Itoa(level)] = read
	}
	return found, nil
}

func (s *scenario) committed(ctx context.Context, group string) ([]any, error) {
	offsets, err := s.admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	list := []any{}
	for _, offset := range offsets.Sorted() {
		if offset.Err != nil {
			return nil, offset.Err
		}
		// A member of franz-go's commits its id as the metadata.
		if strings.HasPrefix(offset.Metadata, "kgo-") || strings.HasPrefix(offset.Metadata, "the-member-") {
			offset.Metadata = "member"
		}
		list = append(list, []any{offset.Partition, offset.At, offset.Metadata})
	}
	return list, nil
}

func (s *scenario) commit(ctx context.Context, group, topic string, partition int32, offset int64, metadata string) error {
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset, LeaderEpoch: -1, Metadata: metadata})
	responses, err := s.admin.CommitOffsets(ctx, group, offsets)
	if err == nil {
		err = responses.Error()
	}
	return err
}

func (s *scenario) commitMetadata(ctx context.Context) (any, error) {
	group := s.prefix + "-metadata"
	if err := s.commit(ctx, group, s.main, 0, 5, "five \u00e9"); err != nil {
		return nil, err
	}
	if err := s.commit(ctx, group, s.main, 1, 7, ""); err != nil {
		return nil, err
	}
	asked, err := s.admin.FetchOffsetsForTopics(ctx, group, s.main)
	if err != nil {
		return nil, err
	}
	found := []any{}
	for _, offset := range asked.Sorted()[:3] {
		found = append(found, []any{offset.Partition, offset.At, offset.Metadata, code(offset.Err)})
	}
	tooLong := code(s.commit(ctx, group, s.main, 0, 6, strings.Repeat("x", 5000)))
	listed, err := s.committed(ctx, group)
	return object{"committed": found, "too_long": tooLong, "listed": listed}, err
}

func (s *scenario) subscribeAndRead(ctx context.Context, group string, count int, options ...kgo.Opt) (any, error) {
	own := []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(s.acks), kgo.DisableAutoCommit(), kgo.DisableFetchSessions(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	client, err := s.client(append(own, options...)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	offsets := []int64{}
	for len(offsets) < count {
		fetches := client.PollRecords(ctx, 1)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			offsets = append(offsets, record.Offset)
			if err := client.CommitRecords(ctx, record); err != nil {
				return nil, err
			}
		}
	}
	return []int64{offsets[0], offsets[len(offsets)-1]}, nil
}

func (s *scenario) resume(ctx context.Context) (any, error) {
	group := s.prefix + "-resume"
	first, err := s.subscribeAndRead(ctx, group, 10)
	if err != nil {
		return nil, err
	}
	then, err := s.subscribeAndRead(ctx, group, 5)
	if err != nil {
		return nil, err
	}
	static, err := s.subscribeAndRead(ctx, group, 5, kgo.InstanceID("one"))
	return object{"first": first, "then": then, "static": static}, err
}

// Most of the step is waiting for a dead member's session to end: the groups wait together.
func (s *scenario) groups(context.Context) (any, error) {
	type played struct {
		assignor string
		result   any
		err      error
	}
	ended := make(chan played)
	for assignor := range balancers {
		go func() {
			result, err := s.group(assignor)
			ended <- played{assignor, result, err}
		}()
	}
	found := object{}
	var failures []error
	for range balancers {
		one := <-ended
		found[one.assignor] = one.result
		failures = append(failures, one.err)
	}
	return found, errors.Join(failures...)
}

func (s *scenario) group(assignor string) (any, error) {
	topic := s.prefix + "-group-" + assignor
	ctx, cancel := context.WithTimeout(context.Background(), groupWait)
	defer cancel()
	if _, err := s.admin.CreateTopic(ctx, 6, 1, kept, topic); err != nil {
		return nil, err
	}
	result, err := threeMembers([]string{"member", s.bootstrap, topic, topic, assignor}, func(round int) error {
		var records []*kgo.Record
		for partition := range int32(6) {
			records = append(records, ten(topic, partition, fmt.Sprintf("round-%d", round))...)
		}
		_, err := s.send(ctx, records)
		return err
	})
	if err != nil {
		return nil, err
	}
	found := result.(object)
	found["committed"], err = s.committed(ctx, topic)
	return found, err
}

func (s *scenario) described(ctx context.Context, group string) (any, error) {
	groups, err := s.admin.DescribeGroups(ctx, group)
	if err != nil {
		return nil, err
	}
	found := groups[group]
	members := []any{}
	for _, member := range found.Members {
		partitions := []int32{}
		if assigned, ok := member.Assigned.AsConsumer(); ok {
			for _, topic := range assigned.Topics {
				partitions = append(partitions, topic.Partitions...)
			}
		}
		members = append(members, []any{member.ClientID, member.ClientHost != "", partitions})
	}
	return object{
		"state": found.State, "type": found.ProtocolType, "protocol": found.Protocol, "members": members,
	}, found.Err
}

func (s *scenario) groupAdmin(ctx context.Context) (any, error) {
	group := s.prefix + "-admin"
	assigned := make(chan struct{}, 1)
	member, err := s.client(
		kgo.ClientID("the-member"), kgo.ConsumerGroup(group), kgo.ConsumeTopics(s.acks), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { assigned <- struct{}{} }),
	)
	if err != nil {
		return nil, err
	}
	defer member.Close()
	select {
	case <-assigned:
	case <-ctx.Done():
		return nil, errors.New("nothing was assigned")
	}
	found := object{}
	three := make(chan error, 1)
	offsets := map[string]map[int32]kgo.EpochOffset{s.acks: {0: {Epoch: -1, Offset: 3}}}
	member.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
		three <- err
	})
	if err := <-three; err != nil {
		return nil, err
	}
	groups, err := s.admin.ListGroups(ctx)
	if err != nil {
		return nil, err
	}
	listed := groups[group]
	found["listed"] = []string{listed.State, listed.ProtocolType}
	if found["live"], err = s.described(ctx, group); err != nil {
		return nil, err
	}
	_, err = s.admin.DeleteGroup(ctx, group)
	found["delete_live"] = code(err)
	if err := member.LeaveGroupContext(ctx); err != nil {
		return nil, err
	}
	if found["empty"], err = s.described(ctx, group); err != nil {
		return nil, err
	}
	if found["offsets"], err = s.committed(ctx, group); err != nil {
		return nil, err
	}
	found["move"] = code(s.commit(ctx, group, s.acks, 0, 1, "moved"))
	if found["moved"], err = s.committed(ctx, group); err != nil {
		return nil, err
	}
	// What makes the group go on existing without the other one.
	found["keep"] = code(s.commit(ctx, group, s.main, 1, 2, "kept"))
	forgotten, err := s.admin.DeleteOffsets(ctx, group, kadm.TopicsSet{s.acks: {0: {}}})
	if err == nil {
		err = forgotten.Error()
	}
	found["forget"] = code(err)
	if found["forgotten"], err = s.committed(ctx, group); err != nil {
		return nil, err
	}
	_, err = s.admin.DeleteGroup(ctx, group)
	found["delete"] = code(err)
	_, err = s.admin.DeleteGroup(ctx, group)
	found["delete_again"] = code(err)
	_, err = s.described(ctx, group)
	found["describe_deleted"] = code(err)
	return found, nil
}

func (s *scenario) deleteBefore(ctx context.Context, offset int64) any {
	var offsets kadm.Offsets
	offsets.AddOffset(s.acks, 0, offset, -1)
	responses, err := s.admin.DeleteRecords(ctx, offsets)
	if err != nil {
		return code(err)
	}
	response := responses[s.acks][0]
	return []any{code(response.Err), response.LowWatermark}
}

func (s *scenario) deleteRecords(ctx context.Context) (any, error) {
	found := object{
		"before_four":    s.deleteBefore(ctx, 4),
		"beyond_the_end": s.deleteBefore(ctx, 1000),
		"lower":          s.deleteBefore(ctx, 2),
	}
	var err error
	found["read"], err = summary(s.read(ctx, s.acks, 0, kgo.NewOffset().AtStart()))
	return found, err
}

func (s *scenario) createPartitions(ctx context.Context) (any, error) {
	update := func(topic string, count int) any {
		responses, err := s.admin.UpdatePartitions(ctx, count, topic)
		if err == nil {
			err = responses.Error()
		}
		return code(err)
	}
	found := object{"to_three": update(s.acks, 3), "to_two": update(s.acks, 2)}
	offsets, err := s.send(ctx, []*kgo.Record{{Topic: s.acks, Partition: 2, Value: []byte("new")}})
	if err != nil {
		return nil, err
	}
	found["offsets"] = offsets
	topics, err := s.admin.ListTopics(ctx, s.acks)
	found["partitions"] = topics[s.acks].Partitions.Numbers()
	return found, err
}

func (s *scenario) describeConfigs(ctx context.Context, topic string) (object, error) {
	described, err := s.admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	found, err := described.On(topic, nil)
	if err == nil {
		err = found.Err
	}
	if err != nil {
		return nil, err
	}
	values := object{}
	for _, config := range found.Configs {
		if slices.Contains([]string{"retention.ms", "cleanup.policy", "max.message.bytes"}, config.Key) {
			values[config.Key] = []any{config.MaybeValue(), config.Source.String()}
		}
	}
	return values, nil
}

func (s *scenario) configs(ctx context.Context) (any, error) {
	alter := func(topic string, operation kadm.IncrementalOp, value *string) any {
		change := kadm.AlterConfig{Op: operation, Name: "retention.ms", Value: value}
		responses, err := s.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, topic)
		if err == nil {
			err = responses[0].Err
		}
		return code(err)
	}
	found := object{}
	// Kafka answers a change before its metadata has followed.
	show := func(name, awaited string) error {
		for {
			described, err := s.describeConfigs(ctx, s.acks)
			if err != nil {
				return err
			}
			found[name] = described
			if retention, ok := described["retention.ms"].([]any); ok && retention[0] == awaited {
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	if err := show("before", "-1"); err != nil {
		return nil, err
	}
	found["set"] = alter(s.acks, kadm.SetConfig, text("86400000"))
	if err := show("after", "86400000"); err != nil {
		return nil, err
	}
	found["delete"] = alter(s.acks, kadm.DeleteConfig, nil)
	if err := show("deleted", "604800000"); err != nil {
		return nil, err
	}
	found["no_number"] = alter(s.acks, kadm.SetConfig, text("tomorrow"))
	found["unknown_topic"] = alter(s.prefix+"-nowhere", kadm.SetConfig, text("1"))
	_, err := s.describeConfigs(ctx, s.prefix+"-nowhere")
	found["describe_unknown"] = code(err)
	state := []kadm.AlterConfig{{Name: "retention.ms", Value: text("-1")}}
	responses, err := s.admin.AlterTopicConfigsState(ctx, state, s.acks)
	if err != nil {
		return nil, err
	}
	found["replaced"] = code(responses[0].Err)
	return found, show("at_last", "-1")
}

func (s *scenario) errors(ctx context.Context) (any, error) {
	nowhere, bounds := s.prefix+"-nowhere", s.prefix+"-bounds"
	found := object{}
	unknown := []*kgo.Record{{Topic: nowhere, Value: []byte("v")}}
	_, err := s.send(ctx, unknown, kgo.UnknownTopicRetries(0))
	found["produce_unknown"] = code(err)
	_, err = s.read(ctx, nowhere, 0, at(0))
	found["read_unknown"] = code(err)
	_, err = s.read(ctx, s.main, 0, at(1000), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	found["beyond_the_end"] = code(err)
	reset, err := s.read(ctx, s.main, 0, at(1000), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	found["beyond_then_earliest"] = reset[0].Offset
	large := &kgo.Record{Topic: s.main, Value: make([]byte, 2_000_000), Timestamp: time.UnixMilli(base)}
	_, err = s.send(ctx, []*kgo.Record{large}, kgo.ProducerBatchMaxBytes(10_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	found["too_large"] = code(err)
	_, err = s.admin.CreateTopic(ctx, 1, 1, map[string]*string{"message.timestamp.before.max.ms": text("3600000")}, bounds)
	found["bounds"] = code(err)
	_, err = s.send(ctx, ten(bounds, 0, "old"))
	found["old"] = code(err)
	_, err = s.send(ctx, []*kgo.Record{{Topic: bounds, Value: []byte("v")}})
	found["present"] = code(err)
	return found, nil
}

func (s *scenario) transactions(ctx context.Context) (any, error) {
	topic, group := s.prefix+"-transactions", s.prefix+"-transactional"
	if _, err := s.admin.CreateTopic(ctx, 1, 1, kept, topic); err != nil {
		return nil, err
	}
	client, err := s.client(kgo.TransactionalID(group), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(200*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		name := map[kgo.TransactionEndTry]string{kgo.TryCommit: "commit", kgo.TryAbort: "abort"}[end]
		if err := client.BeginTransaction(); err != nil {
			return object{"refused": code(err)}, nil
		}
		// The first of them asks for the producer id, which is where a broker refuses.
		if err := client.ProduceSync(ctx, ten(topic, 0, name)...).FirstErr(); err != nil {
			return object{"refused": code(err)}, nil
		}
		if err := client.EndTransaction(ctx, end); err != nil {
			return nil, err
		}
	}
	found := object{}
	levels := map[string]kgo.IsolationLevel{
		"read_committed": kgo.ReadCommitted(), "read_uncommitted": kgo.ReadUncommitted(),
	}
	for name, level := range levels {
		if found[name], err = summary(s.read(ctx, topic, 0, at(0), kgo.FetchIsolationLevel(level))); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (s *scenario) groupProtocolConsumer(ctx context.Context) (any, error) {
	client, err := s.client(kgo.ConsumerGroup(s.prefix+"-protocol"), kgo.ConsumeTopics(s.main), kgo.DisableAutoCommit(),
		// It falls back to the classic protocol where the broker has no other.
		kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	count := 0
	for count < 200 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return object{"refused": code(err)}, nil
		}
		count += fetches.NumRecords()
	}
	return object{"records": count}, nil
}

func (s *scenario) deleteTopics(ctx context.Context) (any, error) {
	names, err := s.ownTopics(ctx, func(names []string) bool { return slices.Contains(names, "-bounds") })
	if err != nil {
		return nil, err
	}
	for i := range names {
		names[i] = s.prefix + names[i]
	}
	responses, err := s.admin.DeleteTopics(ctx, names...)
	if err == nil {
		err = responses.Error()
	}
	found := object{"delete": code(err)}
	if found["left"], err = s.ownTopics(ctx, func(names []string) bool { return len(names) == 0 }); err != nil {
		return nil, err
	}
	_, err = s.admin.DeleteTopic(ctx, s.prefix+"-nowhere")
	found["unknown"] = code(err)
	return found, nil
}
