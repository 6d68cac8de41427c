// kafka-node reads COUNT messages of partition 0 from the beginning. Outside of a group it knows no Fetch but version 0.
//
//     client_kafka_node.js BOOTSTRAP TOPIC COUNT
'use strict'
// Its codec is a native module; here it is snappyjs under the same name, which has no callbacks.
const snappy = require('snappy')
const { uncompress } = snappy
snappy.uncompress = (buffer, callback) => {
  let plain
  try { plain = uncompress(buffer) } catch (error) { return callback(error) }
  callback(null, plain)
}
const { KafkaClient, Consumer } = require('kafka-node')

const [kafkaHost, topic, count] = process.argv.slice(2)

const fail = (error) => { console.error(error); process.exit(1) }
const client = new KafkaClient({ kafkaHost })
const options = { fromOffset: true, autoCommit: false, fetchMaxBytes: 20000, encoding: 'utf8', keyEncoding: 'utf8' }
client.on('error', fail)
const consumer = new Consumer(client, [{ topic, partition: 0, offset: 0 }], options)
const lines = []

consumer.on('error', fail)
consumer.on('offsetOutOfRange', fail)
consumer.on('message', ({ offset, key, value }) => {
  lines.push([offset, key, value].join('\t') + '\n')
})
// Only at the end of an answer, so that a message too many is told.
consumer.on('done', () => {
  if (lines.length >= Number(count)) process.stdout.write(lines.join(''), () => process.exit(0))
})
