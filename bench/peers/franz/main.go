// Reads given partitions with franz-go and prints one line of JSON: options as in ../../src/peer.rs.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// firstRecord is how long a consumer waits for its first records.
const firstRecord = 25 * time.Second

type settings []string

func (s *settings) String() string         { return strings.Join(*s, ",") }
func (s *settings) Set(value string) error { *s = append(*s, value); return nil }

type outcome struct {
	Records      int64    `json:"records"`
	Bytes        int64    `json:"bytes"`
	Seconds      float64  `json:"seconds"`
	FirstSeconds *float64 `json:"first_seconds"`
	Hash         *string  `json:"hash"`
	Contiguous   *bool    `json:"contiguous"`
	Complete     bool     `json:"complete"`
	LongestGapMs *float64 `json:"longest_gap_ms"`
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// option turns a setting, by franz-go's own name, into an option.
func option(setting string) kgo.Opt {
	name, value, _ := strings.Cut(setting, "=")
	number, err := strconv.Atoi(value)
	check(err)
	switch name {
	case "FetchMaxBytes":
		return kgo.FetchMaxBytes(int32(number))
	case "FetchMaxPartitionBytes":
		return kgo.FetchMaxPartitionBytes(int32(number))
	case "BrokerMaxReadBytes":
		return kgo.BrokerMaxReadBytes(int32(number))
	case "MaxConcurrentFetches":
		return kgo.MaxConcurrentFetches(number)
	}
	log.Fatalf("%s is not a setting here", name)
	return nil
}

func main() {
	bootstrap := flag.String("bootstrap", "", "")
	topic := flag.String("topic", "", "")
	until := flag.String("ends", "", "")
	limit := flag.Float64("seconds", 0, "")
	hashing := flag.Bool("hash", false, "")
	pauses := flag.Bool("pauses", false, "")
	ca := flag.String("ca", "", "")
	var set settings
	flag.Var(&set, "set", "")
	flag.Parse()

	ends := map[int32]int64{}
	open := 0
	starts := map[int32]kgo.Offset{}
	for _, part := range strings.Split(*until, ",") {
		var partition int32
		var end int64
		_, err := fmt.Sscanf(part, "%d=%d", &partition, &end)
		check(err)
		ends[partition] = end
		starts[partition] = kgo.NewOffset().At(0)
		if end > 0 {
			open++
		}
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(*bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{*topic: starts}),
	}
	if *ca != "" {
		pem, err := os.ReadFile(*ca)
		check(err)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		opts = append(opts, kgo.DialTLSConfig(&tls.Config{RootCAs: pool}))
	}
	for _, setting := range set {
		opts = append(opts, option(setting))
	}

	begun := time.Now()
	deadline := begun.Add(firstRecord)
	client, err := kgo.NewClient(opts...)
	check(err)

	var result outcome
	var hash uint64
	var timestamps int64
	contiguous, paused := true, false
	next := map[int32]int64{}
	last, resumed := begun, begun
	var longest time.Duration
	for open > 0 && time.Now().Before(deadline) {
		asked := time.Now()
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		fetches := client.PollFetches(ctx)
		cancel()
		if time.Now().After(deadline) && fetches.Empty() {
			break
		}
		if err := fetches.Err(); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
			log.Fatal(err)
		}
		if paused {
			longest = max(longest, time.Since(asked))
		}
		fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
			end, expected := ends[fetched.Partition], next[fetched.Partition]
			for _, record := range fetched.Records {
				if record.Offset >= end {
					continue
				}
				contiguous = contiguous && record.Offset == expected
				expected = record.Offset + 1
				result.Records++
				result.Bytes += int64(len(record.Value))
				timestamps ^= record.Timestamp.UnixMilli()
				if *hashing {
					hash += uint64(crc32.ChecksumIEEE(record.Value))
				}
				if expected == end {
					open--
				}
			}
			next[fetched.Partition] = expected
		})
		last = time.Now()
		if result.FirstSeconds == nil {
			first := last.Sub(begun).Seconds()
			result.FirstSeconds = &first
			deadline = last.Add(time.Duration(*limit * float64(time.Second)))
		}
		if *pauses && last.Sub(resumed) >= 2*time.Second {
			time.Sleep(200 * time.Millisecond)
			resumed, paused = time.Now(), true
		}
	}
	result.Seconds = last.Sub(begun).Seconds()
	result.Complete = open == 0
	if *hashing {
		text := strconv.FormatUint(hash, 10)
		result.Hash, result.Contiguous = &text, &contiguous
	}
	if paused {
		gap := float64(longest) / float64(time.Millisecond)
		result.LongestGapMs = &gap
	}
	_ = timestamps
	check(json.NewEncoder(os.Stdout).Encode(result))
}
