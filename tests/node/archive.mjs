// Reads an archive from its first argument, tells what is in it as JSON, and writes the same blocks
// in reverse order to its second.
import { createReadStream, createWriteStream } from "node:fs";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { CarReader, CarWriter } from "@ipld/car";
import * as dagCbor from "@ipld/dag-cbor";
import { sha256 } from "multiformats/hashes/sha2";

const [, , source, target] = process.argv;
const reader = await CarReader.fromIterable(createReadStream(source));
const roots = await reader.getRoots();
const blocks = [];
for await (const block of reader.blocks()) {
  const hashed = await sha256.digest(block.bytes);
  const same = Buffer.compare(hashed.bytes, block.cid.multihash.bytes) === 0;
  blocks.push({ ...block, same, keys: Object.keys(dagCbor.decode(block.bytes)).sort() });
}
const { writer, out } = CarWriter.create(roots);
const written = pipeline(Readable.from(out), createWriteStream(target));
for (const block of [...blocks].reverse()) await writer.put(block);
await writer.close();
await written;
console.log(
  JSON.stringify({
    roots: roots.map(String),
    blocks: blocks.map(({ cid, same, keys }) => ({ cid: cid.toString(), same, keys })),
  }),
);
