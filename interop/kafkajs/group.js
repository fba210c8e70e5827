'use strict'

// Step `group`: three processes, one of which is killed. As a program, one member: `group.js BOOTSTRAP TOPIC GROUP`.

const { spawn } = require('node:child_process')
const { once } = require('node:events')
const { createInterface } = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

const WAIT = 90000

class Members {
  constructor() {
    this.processes = []
    this.assigned = []
    this.read = new Set()
    this.told = () => {}
  }

  start(...args) {
    const child = spawn(process.execPath, [__filename, ...args], { stdio: ['pipe', 'pipe', 'inherit'] })
    const number = this.processes.push(child) - 1
    this.assigned.push([])
    createInterface({ input: child.stdout }).on('line', line => {
      const event = JSON.parse(line)
      if (event.assigned) this.assigned[number] = event.assigned
      else this.read.add(event.read.join('/'))
      this.told()
    })
  }

  async until(what, reached) {
    await new Promise((resolve, reject) => {
      const state = () => `${JSON.stringify(this.assigned)}, ${this.read.size} records read`
      const late = setTimeout(() => reject(new Error(`waiting for ${what}: ${state()}`)), WAIT)
      this.told = () => {
        if (!reached()) return
        clearTimeout(late)
        resolve()
      }
      this.told()
    })
  }

  eachHas(count, ...numbers) {
    const lists = numbers.map(number => this.assigned[number])
    return lists.every(list => list.length === count) && new Set(lists.flat()).size === count * lists.length
  }

  async leave(number) {
    const child = this.processes[number]
    const ended = once(child, 'exit', { signal: AbortSignal.timeout(WAIT) })
    child.stdin.end()
    await ended
  }
}

// Plays the step; `produceTenEach(round)` produces ten records to each of the six partitions.
const threeMembers = async (args, produceTenEach) => {
  const members = new Members()
  try {
    for (let i = 0; i < 3; i++) members.start(...args)
    await members.until('two partitions each', () => members.eachHas(2, 0, 1, 2))
    await produceTenEach(1)
    await members.until('sixty records', () => members.read.size === 60)
    members.processes[0].kill('SIGKILL')
    await produceTenEach(2)
    await members.until('three partitions each', () => members.eachHas(3, 1, 2))
    await members.until('all records', () => members.read.size === 120)
    await members.leave(1)
    await members.until('all partitions', () => members.eachHas(6, 2))
    await members.leave(2)
  } finally {
    members.processes.forEach(child => child.kill('SIGKILL'))
  }
  return { each: [2, 2, 2], after_kill: [3, 3], after_leave: [6], read: members.read.size }
}

const member = async (bootstrap, topic, groupId) => {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 500, maxWaitTimeInMs: 200 })
  const say = line => console.log(JSON.stringify(line))
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => say({ assigned: payload.memberAssignment[topic] || [] }))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    // When a commit fails because the group is rebalancing, whoever has the partition then reads the record again.
    eachMessage: async ({ partition, message }) => {
      await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
      say({ read: [partition, Number(message.offset)] })
    },
  })
  process.stdin.on('end', async () => {
    await consumer.disconnect()
    process.exit(0)
  })
  process.stdin.resume()
}

module.exports = { threeMembers }

if (require.main === module) member(...process.argv.slice(2))
