'use strict'

// The scenario of ../SCENARIO.md with KafkaJS: `scenario.js BOOTSTRAP PREFIX`.

const { setTimeout: sleep } = require('node:timers/promises')
const { Kafka, logLevel, ConfigResourceTypes } = require('kafkajs')
const codecs = require('./codecs')
const { threeMembers } = require('./group')
const { BASE, LATE, CODECS, twenty, digest } = require('./records')

const WAIT = 30000
const [bootstrap, prefix] = process.argv.slice(2)
const main = `${prefix}-records`
const acks = `${prefix}-acks`
const nowhere = `${prefix}-nowhere`

const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, clientId: 'scenario' })
// Some of its requests are meant to fail, and must not take long to.
const admin = kafka.admin({ retry: { initialRetryTime: 50, retries: 4 } })

const ending = async (work, ms = WAIT) => {
  const clock = new AbortController()
  const late = sleep(ms, null, { signal: clock.signal }).then(() => Promise.reject(new Error(`not done in ${ms} ms`)))
  try {
    return await Promise.race([work, late])
  } finally {
    clock.abort()
    late.catch(() => {})
  }
}

// 0, or Kafka's number of the error that a request ended with.
const code = async work => {
  try {
    await work
    return 0
  } catch (error) {
    return numberOf(error)
  }
}

const numberOf = error => {
  for (const one of [error, ...(error.errors || []), error.cause, error.originalError].filter(Boolean)) {
    if (typeof one.code === 'number') return one.code
    if (one.groups) return one.groups[0].errorCode
    const partition = (one.partitions || []).find(each => each.error)
    if (partition) return numberOf(partition.error)
  }
  return error.cause && error.cause !== error ? numberOf(error.cause) : `${error.name}: ${error.message}`
}

// The first and the last offset that the records got.
const send = async (topic, messages, { compression, acks, ...options } = {}) => {
  const producer = kafka.producer({ allowAutoTopicCreation: false, ...options })
  await producer.connect()
  try {
    const answers = await producer.send({ topic, messages, compression, acks })
    return answers.map(answer => Number(answer.baseOffset))
  } finally {
    await producer.disconnect()
  }
}

const ten = (text, partition) =>
  Array.from({ length: 10 }, (_, i) => ({ partition, value: `${text}-${i}`, timestamp: String(BASE + i) }))

let readers = 0

// The records of some partitions, each from its offset in `starts` to the end of the log. KafkaJS reads as a member of a
// group only; this one commits nothing.
const read = async (topic, starts, options = {}) => {
  const ends = Object.fromEntries((await admin.fetchTopicOffsets(topic)).map(p => [p.partition, Number(p.high)]))
  const groupId = `${prefix}-reader-${readers++}`
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100, allowAutoTopicCreation: false, ...options })
  const found = Object.fromEntries(Object.keys(starts).map(partition => [partition, []]))
  const left = new Set(Object.keys(starts))
  const others = Object.keys(ends).map(Number).filter(partition => !(partition in starts))
  let sought = false
  let skipped = false
  await consumer.connect()
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await ending(
      new Promise((resolve, reject) => {
        consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
        // It tells of batches of control records too, which `eachBatch` is not given.
        consumer.on(consumer.events.END_BATCH_PROCESS, ({ payload: { partition, lastOffset } }) => {
          if (!skipped && Number(lastOffset) >= ends[partition] - 1) left.delete(String(partition))
          if (left.size === 0) resolve()
          skipped = false
        })
        consumer
          .run({
            autoCommit: false,
            eachBatchAutoResolve: false,
            eachBatch: async ({ batch, isStale, resolveOffset }) => {
              // What is not resolved comes again.
              skipped = !sought || isStale() || !(batch.partition in starts)
              if (skipped) return
              found[batch.partition].push(...batch.messages)
              resolveOffset(batch.lastOffset())
            },
          })
          .then(() => {
            if (others.length) consumer.pause([{ topic, partitions: others }])
            for (const [partition, offset] of Object.entries(starts)) {
              consumer.seek({ topic, partition: Number(partition), offset: String(offset) })
            }
            sought = true
          }, reject)
      })
    )
  } finally {
    await consumer.disconnect()
  }
  return found
}

const summary = messages => ({
  first: messages.length ? Number(messages[0].offset) : null,
  count: messages.length,
  digest: digest(messages),
})

const summaries = async (...args) =>
  Object.fromEntries(Object.entries(await read(...args)).map(([partition, messages]) => [partition, summary(messages)]))

const from = (offset, ...partitions) => Object.fromEntries(partitions.map(partition => [partition, offset]))

const kept = [{ name: 'retention.ms', value: '-1' }]

// Our topics without the prefix; Kafka answers a change before its metadata has followed.
const ownTopics = async awaited => {
  const deadline = Date.now() + WAIT
  for (;;) {
    const names = (await admin.listTopics()).filter(name => name.startsWith(prefix)).sort()
    const own = names.map(name => name.slice(prefix.length))
    if (awaited(own) || Date.now() > deadline) return own
    await sleep(100)
  }
}

const connect = async () => {
  const { brokers, controller, clusterId } = await admin.describeCluster()
  return { brokers: brokers.length, controller: brokers.some(b => b.nodeId === controller), cluster_id: !!clusterId }
}

// KafkaJS answers false, and no error, when a topic exists.
const createTopics = async () => {
  const create = (topic, numPartitions, configEntries = [], more = {}, options = {}) =>
    admin
      .createTopics({ topics: [{ topic, numPartitions, configEntries, ...more }], waitForLeaders: false, ...options })
      .catch(numberOf)
  return {
    main: await create(main, 10, kept),
    again: await create(main, 10, kept),
    name: await create(`${prefix}/slash`, 1),
    partitions: await create(`${prefix}-partitions`, 0),
    replicas: await create(`${prefix}-replicas`, 1, [], { replicationFactor: 3 }),
    config: await create(`${prefix}-config`, 1, [{ name: 'no.such.config', value: '1' }]),
    validated: await create(`${prefix}-validated`, 1, [], {}, { validateOnly: true }),
    acks: await create(acks, 1, kept),
    topics: await ownTopics(names => names.includes('-acks')),
  }
}

const metadata = async () => {
  const { topics } = await admin.fetchTopicMetadata({ topics: [main] })
  const { partitions } = topics[0]
  const sizes = lists => [...new Set(lists.map(list => list.length))]
  return {
    partitions: partitions.map(p => p.partitionId).sort((a, b) => a - b),
    leaders: partitions.every(p => p.leader >= 0 && p.partitionErrorCode === 0),
    replicas: sizes(partitions.map(p => p.replicas)),
    in_sync: sizes(partitions.map(p => p.isr)),
    offline: sizes(partitions.map(p => p.offlineReplicas)),
  }
}

const produce = async (codec, idempotent) => {
  const partition = 2 * CODECS.indexOf(codec) + (idempotent ? 1 : 0)
  const options = { compression: codecs[codec], idempotent, maxInFlightRequests: idempotent ? 1 : null }
  const [first] = await send(main, twenty(codec, partition), options)
  return { partition, first }
}

const consume = () => summaries(main, from(0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9))

const TIMES = [BASE - 1, BASE, BASE + 2500, LATE + 1, BASE + 13000, BASE + 19000, BASE + 19001]

const byTime = async time => {
  const found = await admin.fetchTopicOffsetsByTimestamp(main, time)
  return Object.fromEntries(found.map(p => [p.partition, Number(p.offset)]))
}

const times = async () => {
  const found = {}
  const perTime = []
  for (const time of TIMES) perTime.push(await byTime(time))
  for (const { partition, low, high } of await admin.fetchTopicOffsets(main)) {
    if (partition % 2) continue
    found[partition] = { first_at_or_after: perTime.map(of => of[partition]), watermarks: [Number(low), Number(high)] }
  }
  return found
}

const seekTime = async () => (await summaries(main, from((await byTime(LATE + 1))[2], 2)))[2]

const seekIntoBatch = () => summaries(main, from(7, 0, 2, 4, 6, 8))

const smallFetches = () => summaries(main, from(0, 0, 2), { maxBytesPerPartition: 200, maxBytes: 200 })

const produceAcks = async () => {
  const found = {}
  for (const level of [0, 1]) {
    const producer = kafka.producer({ allowAutoTopicCreation: false })
    await producer.connect()
    await producer.send({ topic: acks, messages: ten(`acks-${level}`, 0), acks: level })
    await producer.disconnect()
    // Nothing tells a producer without acknowledgements that its records are there.
    const deadline = Date.now() + WAIT
    const end = async () => Number((await admin.fetchTopicOffsets(acks))[0].high)
    while ((await end()) < 10 * (level + 1) && Date.now() < deadline) await sleep(50)
    found[level] = (await summaries(acks, from(0, 0)))[0]
  }
  return found
}

const offsetsOf = async (groupId, topics) => {
  const found = await admin.fetchOffsets({ groupId, topics })
  const list = found.flatMap(({ partitions }) => partitions.map(p => [p.partition, Number(p.offset), p.metadata]))
  return list.sort((a, b) => a[0] - b[0])
}

// A member that reads `count` records, committing each, and what `work` makes of the consumer then.
const member = async (groupId, topic, count, work = async () => {}, options = {}) => {
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100, ...options })
  const offsets = []
  await consumer.connect()
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await ending(
      new Promise((resolve, reject) => {
        consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
        if (count === 0) consumer.on(consumer.events.GROUP_JOIN, resolve)
        consumer
          .run({
            autoCommit: false,
            eachMessage: async ({ partition, message }) => {
              if (offsets.length === count) return
              const offset = Number(message.offset)
              await consumer.commitOffsets([{ topic, partition, offset: String(offset + 1) }])
              offsets.push(offset)
              if (offsets.length === count) resolve()
            },
          })
          .catch(reject)
      })
    )
    return (await work(consumer)) || [offsets[0], offsets[offsets.length - 1]]
  } finally {
    await consumer.disconnect()
  }
}

const commitMetadata = async () => {
  const groupId = `${prefix}-metadata`
  return member(groupId, main, 0, async consumer => {
    const commit = (partition, offset, metadata) => consumer.commitOffsets([{ topic: main, partition, offset, metadata }])
    await commit(0, '5', 'five \u00e9')
    await commit(1, '7')
    const committed = (await offsetsOf(groupId, [main])).slice(0, 3)
    const tooLong = await code(commit(0, '6', 'x'.repeat(5000)))
    return { committed, too_long: tooLong, after: (await offsetsOf(groupId, [main]))[0][1], listed: await offsetsOf(groupId) }
  })
}

const resume = async () => ({
  first: await member(`${prefix}-resume`, acks, 10),
  then: await member(`${prefix}-resume`, acks, 10),
})

const group = async () => {
  const topic = `${prefix}-group`
  await admin.createTopics({ topics: [{ topic, numPartitions: 6, configEntries: kept }] })
  const found = await threeMembers([bootstrap, topic, topic], async round => {
    await send(topic, [0, 1, 2, 3, 4, 5].flatMap(partition => ten(`round-${round}`, partition)))
  })
  return { ...found, committed: await offsetsOf(topic) }
}

const described = async groupId => {
  const { groups } = await admin.describeGroups([groupId])
  const { errorCode, state, protocolType, protocol, members } = groups[0]
  return { error: errorCode, state, type: protocolType, protocol, members: members.map(m => [m.clientId, !!m.clientHost]) }
}

const groupAdmin = async () => {
  const groupId = `${prefix}-admin`
  const found = {}
  await member(groupId, acks, 3, async () => {
    const { groups } = await admin.listGroups()
    found.listed = groups.filter(each => each.groupId === groupId).map(each => each.protocolType)
    found.live = await described(groupId)
    found.delete_live = await code(admin.deleteGroups([groupId]))
  })
  found.empty = await described(groupId)
  found.offsets = await offsetsOf(groupId)
  await admin.setOffsets({ groupId, topic: acks, partitions: [{ partition: 0, offset: '1' }] })
  found.moved = await offsetsOf(groupId)
  await admin.resetOffsets({ groupId, topic: acks, earliest: true })
  found.reset = await offsetsOf(groupId)
  found.delete = await code(admin.deleteGroups([groupId]))
  found.delete_again = await code(admin.deleteGroups([groupId]))
  return found
}

const deleteRecords = async () => {
  const before = offset => code(admin.deleteTopicRecords({ topic: acks, partitions: [{ partition: 0, offset }] }))
  const found = { before_four: await before('4'), beyond_the_end: await before('1000') }
  const [{ low, high }] = await admin.fetchTopicOffsets(acks)
  found.watermarks = [Number(low), Number(high)]
  found.read = (await summaries(acks, from(4, 0)))[0]
  return found
}

const createPartitions = async () => {
  const grow = (topic, count) => code(admin.createPartitions({ topicPartitions: [{ topic, count }] }))
  const found = { to_three: await grow(acks, 3), to_two: await grow(acks, 2), unknown: await grow(nowhere, 2) }
  found.offsets = await send(acks, [{ partition: 2, value: 'new' }])
  const { topics } = await admin.fetchTopicMetadata({ topics: [acks] })
  found.partitions = topics[0].partitions.map(p => p.partitionId).sort()
  return found
}

const TOPIC = ConfigResourceTypes.TOPIC

const configs = async () => {
  const describe = async (name = acks) => {
    const resources = [{ type: TOPIC, name, configNames: ['retention.ms', 'cleanup.policy', 'max.message.bytes'] }]
    const { resources: found } = await admin.describeConfigs({ resources, includeSynonyms: false })
    const entries = found[0].configEntries.map(e => [e.configName, e.configValue, e.isDefault])
    return entries.sort((a, b) => a[0].localeCompare(b[0]))
  }
  // Kafka answers a change before its metadata has followed.
  const shown = async awaited => {
    const deadline = Date.now() + 20_000
    for (;;) {
      const entries = await describe()
      if (entries.some(([name, value]) => name === 'retention.ms' && value === awaited) || Date.now() > deadline) return entries
      await new Promise(resolve => setTimeout(resolve, 100))
    }
  }
  const alter = (value, name = acks) => {
    const resources = [{ type: TOPIC, name, configEntries: [{ name: 'retention.ms', value }] }]
    return code(admin.alterConfigs({ resources, validateOnly: false }))
  }
  const found = { before: await describe(), set: await alter('86400000') }
  found.after = await shown('86400000')
  found.no_number = await alter('tomorrow')
  found.unknown_topic = await alter('1', nowhere)
  found.describe_unknown = await code(describe(nowhere))
  found.set_back = await alter('-1')
  found.at_last = await shown('-1')
  return found
}

const errors = async () => {
  const bounds = `${prefix}-bounds`
  const once = { retry: { retries: 1 } }
  const entries = [{ name: 'message.timestamp.before.max.ms', value: '3600000' }]
  return {
    produce_unknown: await code(send(nowhere, [{ value: 'v' }], once)),
    read_unknown: await code(read(nowhere, from(0, 0), once)),
    // It starts again where the group would start without a committed offset.
    beyond_then_earliest: (await summaries(main, from(1000, 0)))[0],
    too_large: await code(send(main, [{ partition: 0, value: 'x'.repeat(2000000), timestamp: String(BASE) }], once)),
    bounds: await code(admin.createTopics({ topics: [{ topic: bounds, configEntries: entries }] })),
    old: await code(send(bounds, ten('old', 0), once)),
    present: await code(send(bounds, [{ value: 'v' }], once)),
  }
}

const transactions = async () => {
  const topic = `${prefix}-transactions`
  const groupId = `${prefix}-transactional`
  await admin.createTopics({ topics: [{ topic, configEntries: kept }] })
  const options = { transactionalId: groupId, idempotent: true, maxInFlightRequests: 1, retry: { retries: 2 } }
  const producer = kafka.producer(options)
  await producer.connect()
  try {
    const committed = await producer.transaction()
    await committed.send({ topic, messages: ten('commit', 0) })
    const topics = [{ topic: main, partitions: [{ partition: 0, offset: '9' }] }]
    await committed.sendOffsets({ consumerGroupId: groupId, topics })
    await committed.commit()
    const aborted = await producer.transaction()
    await aborted.send({ topic, messages: ten('abort', 0) })
    await aborted.abort()
  } catch (error) {
    return { refused: numberOf(error) }
  } finally {
    await producer.disconnect()
  }
  return {
    read_committed: (await summaries(topic, from(0, 0)))[0],
    read_uncommitted: (await summaries(topic, from(0, 0), { readUncommitted: true }))[0],
    committed: await offsetsOf(groupId),
  }
}

const deleteTopics = async () => {
  const topics = (await ownTopics(() => true)).map(name => prefix + name)
  return {
    delete: await code(admin.deleteTopics({ topics })),
    left: await ownTopics(names => names.length === 0),
    unknown: await code(admin.deleteTopics({ topics: [nowhere], timeout: 1000 })),
  }
}

const STEPS = [
  ['connect', connect],
  ['create-topics', createTopics],
  ['metadata', metadata],
  ...CODECS.flatMap(codec => [
    [`produce/${codec}`, () => produce(codec, false)],
    [`produce/${codec}/idempotent`, () => produce(codec, true)],
  ]),
  ['consume', consume],
  ['times', times],
  ['seek-time', seekTime],
  ['seek-into-batch', seekIntoBatch],
  ['small-fetches', smallFetches],
  ['acks', produceAcks],
  ['commit-metadata', commitMetadata],
  ['resume', resume],
  ['group', group],
  ['group-admin', groupAdmin],
  ['delete-records', deleteRecords],
  ['create-partitions', createPartitions],
  ['configs', configs],
  ['errors', errors],
  ['transactions', transactions],
  ['delete-topics', deleteTopics],
]

const run = async () => {
  await admin.connect()
  let failed = false
  for (const [step, work] of STEPS) {
    // One step's failure must not hide the next one's.
    const line = await ending(work(), 4 * WAIT).then(
      result => ({ step, result }),
      error => ({ step, failed: `${error.name}: ${error.message}` })
    )
    failed = failed || 'failed' in line
    console.log(JSON.stringify(line))
  }
  process.exit(failed ? 1 : 0)
}

run()
