// kafkajs: the transactions of clients/README.md.
'use strict'
const { Kafka, logLevel } = require('kafkajs')
const [bootstrap, source, target, group] = process.argv.slice(2)
const emit = (...fields) => process.stdout.write(fields.join('\t') + '\n')
const kafka = new Kafka({ clientId: 'transactions', brokers: [bootstrap], logLevel: logLevel.NOTHING })

async function connect() {
  const producer = kafka.producer({ transactionalId: `id-${group}`, maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  return producer
}

async function produce(producer, phase, count, commits) {
  const transaction = await producer.transaction()
  const messages = Array.from({ length: count }, (_, i) => ({ partition: i % 2, key: `${phase}-${i}`, value: 'value' }))
  await transaction.send({ topic: source, messages })
  await (commits ? transaction.commit() : transaction.abort())
}

// Gives every batch to `take` until it says that it is over.
async function consume(groupId, topic, take) {
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 200, heartbeatInterval: 200 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      eachBatch: async ({ batch, resolveOffset }) => {
        try {
          if (await take(batch, resolveOffset, consumer)) resolve()
        } catch (error) { reject(error) }
      },
    })
  })
  await consumer.disconnect()
}

async function read(topic, wanted) {
  let seen = 0
  await consume(`reader-${group}-${topic}`, topic, async (batch, resolveOffset) => {
    for (const message of batch.messages) {
      emit('read', topic, batch.partition, message.offset, message.key.toString())
      resolveOffset(message.offset)
      seen += 1
    }
    return seen >= wanted
  })
}

async function transform(producer, wanted) {
  let aborted = false
  let done = 0
  await consume(group, source, async (batch, resolveOffset, consumer) => {
    const transaction = await producer.transaction()
    const messages = batch.messages.map(({ key, value }) => ({ partition: batch.partition, key: `out-${key}`, value }))
    await transaction.send({ topic: target, messages })
    const offset = (BigInt(batch.lastOffset()) + 1n).toString()
    const topics = [{ topic: source, partitions: [{ partition: batch.partition, offset }] }]
    await transaction.sendOffsets({ consumerGroupId: group, topics })
    if (!aborted) {
      aborted = true
      await transaction.abort()
      consumer.seek({ topic: source, partition: batch.partition, offset: batch.firstOffset() })
      return false
    }
    await transaction.commit()
    resolveOffset(batch.lastOffset())
    done += batch.messages.length
    return done >= wanted
  })
}

async function main() {
  const producer = await connect()
  await produce(producer, 'first', 20, true)
  await produce(producer, 'aborted', 20, false)
  await produce(producer, 'second', 10, true)
  await read(source, 30)
  await transform(producer, 30)
  await read(target, 30)
  // The producer id is asked for with the first transaction.
  const rival = await connect()
  await produce(rival, 'last', 4, true)
  try {
    await produce(producer, 'fenced', 2, true)
  } catch (error) {
    const type = error.type || (error.cause && error.cause.type) || ''
    if (!['INVALID_PRODUCER_EPOCH', 'PRODUCER_FENCED'].includes(type)) throw error
    emit('fenced')
  }
  emit('done')
  process.exit(0)
}

main().catch((error) => { console.error(error); process.exit(1) })
