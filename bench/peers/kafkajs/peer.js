'use strict'

// Reads given partitions with KafkaJS and prints one line of JSON: options as in ../../src/peer.rs.
//
// KafkaJS has no assignment by hand: it joins a group of its own, which costs a few round trips of its time.

const { randomUUID } = require('node:crypto')
const zlib = require('node:zlib')
const { Kafka, logLevel } = require('kafkajs')
require(process.env.KAFKAJS_CODECS)

const options = { settings: {} }
const given = process.argv.slice(2)
for (let i = 0; i < given.length; i++) {
  const name = given[i].slice(2)
  if (name === 'hash' || name === 'pauses') options[name] = true
  else if (name === 'set') {
    const [key, value] = given[++i].split('=')
    options.settings[key] = Number(value)
  } else options[name] = given[++i]
}
const ends = new Map(options.ends.split(',').map(part => part.split('=').map(Number)))
const next = new Map([...ends.keys()].map(partition => [partition, 0]))
let open = [...ends.values()].filter(end => end > 0).length
const { partitionsConsumedConcurrently, ...consumerSettings } = options.settings

let records = 0, bytes = 0, hash = 0n, timestamps = 0, contiguous = true
let paused = false, longest = 0
const begun = performance.now()
let first = null, last = begun, resumed = begun, asked = begun

let finished = false
const finish = () => {
  if (finished) return
  finished = true
  const outcome = {
    records,
    bytes,
    seconds: (last - begun) / 1e3,
    first_seconds: first === null ? null : (first - begun) / 1e3,
    hash: options.hash ? BigInt.asUintN(64, hash).toString() : null,
    contiguous: options.hash ? contiguous : null,
    complete: open === 0,
    longest_gap_ms: paused ? longest : null,
    note: timestamps < 0 ? 'odd timestamps' : null,
  }
  process.stdout.write(JSON.stringify(outcome) + '\n', () => process.exit(0))
}
const limit = Number(options.seconds) * 1e3
// How long a consumer waits for its first records, in milliseconds.
const FIRST_RECORD = 25e3
const expired = () => (first === null ? performance.now() - begun > FIRST_RECORD : performance.now() - first > limit)
setInterval(() => expired() && finish(), 50)

const eachBatch = async ({ batch }) => {
  const now = performance.now()
  if (paused) longest = Math.max(longest, now - asked)
  const end = ends.get(batch.partition) ?? 0
  let expected = next.get(batch.partition) ?? 0
  for (const { offset: text, timestamp, value } of batch.messages) {
    const offset = Number(text)
    if (offset >= end) continue
    contiguous &&= offset === expected
    expected = offset + 1
    records++
    bytes += value.length
    timestamps = Math.max(timestamps, Number(timestamp))
    if (options.hash) hash += BigInt(zlib.crc32(value))
    if (expected === end) open--
  }
  next.set(batch.partition, expected)
  last = performance.now()
  first ??= last
  if (open === 0 || expired()) return finish()
  if (options.pauses && last - resumed >= 2000) {
    await new Promise(resolve => setTimeout(resolve, 200))
    resumed = performance.now()
    paused = true
  }
  asked = performance.now()
}

const main = async () => {
  const ssl = options.ca ? { ca: [require('node:fs').readFileSync(options.ca)] } : undefined
  const kafka = new Kafka({ brokers: [options.bootstrap], logLevel: logLevel.ERROR, ssl })
  const consumer = kafka.consumer({ groupId: `bench-${randomUUID()}`, ...consumerSettings })
  await consumer.connect()
  await consumer.subscribe({ topic: options.topic, fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatch, partitionsConsumedConcurrently })
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
