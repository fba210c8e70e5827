'use strict'

// KafkaJS brings gzip and leaves the others to its users: its documentation says how. Its own packages for lz4 and zstd
// compile C++ when they are installed, so these take the codecs from JavaScript and WebAssembly.

const { CompressionCodecs, CompressionTypes } = require('kafkajs')
const snappy = require('kafkajs-snappy')
const lz4 = require('lz4js')
const xxh32 = require('lz4js/xxh32')
const { ZstdCodec } = require('zstd-codec')

const zstd = new Promise(resolve => ZstdCodec.run(codec => resolve(new codec.Simple())))

CompressionCodecs[CompressionTypes.Snappy] = snappy
// lz4js marks its blocks as linked, which Kafka refuses; a frame of one block links to nothing, and may say so.
const independent = frame => {
  const BLOCK_INDEPENDENCE = 0x20
  frame[4] |= BLOCK_INDEPENDENCE
  frame[6] = (xxh32.hash(0, frame, 4, 2) >> 8) & 0xff
  return frame
}

CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => independent(Buffer.from(lz4.compress(encoder.buffer))),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from((await zstd).compress(encoder.buffer)),
  decompress: async buffer => Buffer.from((await zstd).decompress(buffer)),
})

module.exports = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
