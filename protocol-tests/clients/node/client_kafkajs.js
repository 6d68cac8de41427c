// kafkajs, with the codecs that its users plug in.
'use strict'
const readline = require('readline')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
})
const CODECS = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
}
const PHASES = Object.keys(CODECS)
const PARTITIONS = 4
const COUNT = 40
const [bootstrap, topic, group] = process.argv.slice(2)

const emit = (...fields) => process.stdout.write(fields.join('\t') + '\n')

// Every read, assignment and end of a restart wakes the one who waits for a condition.
let wake = () => {}
const until = async (condition) => {
  while (!condition()) await new Promise((resolve) => { wake = resolve })
}

function records(phase) {
  return Array.from({ length: COUNT }, (_, i) => {
    const key = `${phase}-${i}`
    const headers = { phase, number: String(i) }
    return { partition: i % PARTITIONS, key, value: key + ':' + '0123456789'.repeat(20), headers }
  })
}

// One request holds all records of a phase; it tells the first offset of each partition.
async function produce(producer, phase, compression = CompressionTypes.None) {
  const messages = records(phase)
  const answers = await producer.send({ topic, acks: -1, compression, messages })
  const next = new Map(answers.map((answer) => [answer.partition, BigInt(answer.baseOffset)]))
  for (const { key, partition } of messages) {
    emit('produced', key, partition, next.get(partition))
    next.set(partition, next.get(partition) + 1n)
  }
}

class Reader {
  constructor(kafka, name, groupId) {
    this.name = name
    this.owned = []
    this.keys = new Set()
    this.consumer = kafka.consumer({ groupId, heartbeatInterval: 200, maxWaitTimeInMs: 200 })
    this.next = new Map()
  }

  async start(announce) {
    await this.consumer.connect()
    await this.consumer.subscribe({ topic, fromBeginning: true })
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.owned = [...(payload.memberAssignment[topic] || [])].sort()
      if (announce) emit('assigned', this.name, this.owned.join(','))
      wake()
    })
    this.consumer.on(this.consumer.events.CRASH, ({ payload }) => {
      console.error(`${this.name} crashed, restart ${payload.restart}: ${payload.error.stack}`)
      if (!payload.restart) process.exit(1)
    })
    await this.consumer.run({ autoCommit: false, eachMessage: async ({ partition, message }) => this.saw(partition, message) })
  }

  saw(partition, message) {
    const headers = Object.entries(message.headers).map(([name, value]) => `${name}=${value}`).join(',')
    emit('read', this.name, partition, message.offset, message.key, message.value, headers)
    this.keys.add(String(message.key))
    this.next.set(partition, BigInt(message.offset) + 1n)
    wake()
  }

  async commit() {
    const offsets = [...this.next].map(([partition, offset]) => ({ topic, partition, offset: String(offset) }))
    await this.consumer.commitOffsets(offsets)
  }
}

const sawAll = (readers, phases) =>
  phases.every((phase) => records(phase).every(({ key }) => readers.some((reader) => reader.keys.has(key))))

async function main() {
  await zstd.init()
  const kafka = new Kafka({ brokers: [bootstrap], clientId: 'kafkajs', logLevel: logLevel.ERROR, retry: { initialRetryTime: 50, retries: 20 } })
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 1 }] })
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (const [phase, type] of Object.entries(CODECS)) await produce(producer, phase, type)

  // kafkajs has no assignment by hand: a group of one owns all partitions.
  const alone = new Reader(kafka, 'assignment', group + '-alone')
  await alone.start(false)
  await until(() => sawAll([alone], PHASES))
  await alone.consumer.disconnect()

  const a = new Reader(kafka, 'a', group)
  const b = new Reader(kafka, 'b', group)
  await Promise.all([a.start(true), b.start(true)])
  await until(() => a.owned.length === 2 && b.owned.length === 2 && sawAll([a, b], PHASES))
  await produce(producer, 'together')
  await until(() => sawAll([a, b], ['together']))
  await b.commit()
  await a.commit()
  await a.consumer.disconnect()
  await until(() => b.owned.length === PARTITIONS)
  await produce(producer, 'alone')
  await until(() => sawAll([b], ['alone']))
  await b.commit()
  const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  for (const { partition, offset } of partitions) emit('committed', partition, offset)

  emit('restart')
  await new Promise((resolve) => readline.createInterface({ input: process.stdin }).once('line', resolve))
  await produce(producer, 'after')
  await until(() => sawAll([b], ['after']))
  await b.commit()
  await b.consumer.disconnect()
  await producer.disconnect()
  await admin.deleteGroups([group, group + '-alone'])
  await admin.deleteTopics({ topics: [topic] })
  while ((await admin.listTopics()).includes(topic));
  await admin.disconnect()
  emit('done')
  process.exit(0)
}

main().catch((error) => { console.error(error); process.exit(1) })
