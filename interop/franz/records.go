package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The twenty records and the digest of SCENARIO.md.

const (
	base = int64(1_700_000_000_000)
	late = base + 8000
)

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

func twenty(topic string, partition int32, codec string) []*kgo.Record {
	var records []*kgo.Record
	for i := range 20 {
		record := &kgo.Record{Topic: topic, Partition: partition}
		switch {
		case i%5 == 4:
		case i%7 == 6:
			record.Key = []byte{}
		default:
			record.Key = fmt.Appendf(nil, "key-%d", i)
		}
		switch i % 6 {
		case 5:
		case 3:
			record.Value = []byte{}
		default:
			record.Value = fmt.Appendf(nil, "value-%s-%d-%s", codec, i, strings.Repeat("x", 100))
		}
		switch i % 3 {
		case 0:
			record.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte("2")}}
		case 1:
			record.Headers = []kgo.RecordHeader{{Key: "n", Value: nil}, {Key: "e", Value: []byte{}}}
		}
		timestamp := base + 1000*int64(i)
		if i == 13 {
			timestamp = late
		}
		record.Timestamp = time.UnixMilli(timestamp)
		records = append(records, record)
	}
	return records
}

func digest(records []*kgo.Record) string {
	hash := sha256.New()
	for _, record := range records {
		var headers []string
		for _, header := range record.Headers {
			headers = append(headers, header.Key+":"+encoded(header.Value))
		}
		fmt.Fprintf(hash, "%d %d %s %s %s\n", record.Offset, record.Timestamp.UnixMilli(),
			encoded(record.Key), encoded(record.Value), strings.Join(headers, ","))
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

func encoded(value []byte) string {
	if value == nil {
		return "-"
	}
	return "x" + hex.EncodeToString(value)
}
