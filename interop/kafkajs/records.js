'use strict'

// The twenty records and the digest of SCENARIO.md.

const { createHash } = require('node:crypto')

const BASE = 1700000000000
const LATE = BASE + 8000
const CODECS = ['none', 'gzip', 'snappy', 'lz4', 'zstd']

// KafkaJS reads a header without a value and cannot write one: `n` is empty.
const twenty = (codec, partition) =>
  Array.from({ length: 20 }, (_, i) => ({
    partition,
    key: i % 5 === 4 ? null : i % 7 === 6 ? Buffer.alloc(0) : `key-${i}`,
    value: i % 6 === 5 ? null : i % 6 === 3 ? Buffer.alloc(0) : `value-${codec}-${i}-${'x'.repeat(100)}`,
    headers: [{ h: ['1', '2'] }, { n: Buffer.alloc(0), e: Buffer.alloc(0) }, {}][i % 3],
    timestamp: String(i === 13 ? LATE : BASE + 1000 * i),
  }))

const encoded = value => (value === null ? '-' : 'x' + Buffer.from(value).toString('hex'))

const digest = messages => {
  const hash = createHash('sha256')
  for (const { offset, timestamp, key, value, headers } of messages) {
    const each = Object.entries(headers || {}).flatMap(([name, values]) =>
      (Array.isArray(values) ? values : [values]).map(one => `${name}:${encoded(one)}`)
    )
    hash.update(`${offset} ${timestamp} ${encoded(key)} ${encoded(value)} ${each.join(',')}\n`)
  }
  return hash.digest('hex').slice(0, 16)
}

module.exports = { BASE, LATE, CODECS, twenty, digest }
