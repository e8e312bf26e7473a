// A client of the protocol in Node: which worker gets a prompt, and how much of it is cached.
//
//     cd examples/node && npm install
//     node client.mjs 127.0.0.1:50061        # a router; radixkv route
//
// The .proto files are in the repository and in the source distribution. Set RADIXKV_TOKEN where the
// router has a tokens file.

import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const protos = fileURLToPath(new URL("../../proto", import.meta.url));
const definition = loader.loadSync(["radixkv/v1/router.proto", "radixkv/v1/errors.proto"], {
  includeDirs: [protos],
  keepCase: true,
  longs: String, // ids have 64 bits
  defaults: true,
});
const { radixkv } = grpc.loadPackageDefinition(definition);

// Token ids travel as little-endian int32.
const packed = (ids) => ({ packed: Buffer.from(Int32Array.from(ids).buffer) });

function call(client, method, request) {
  const metadata = new grpc.Metadata();
  if (process.env.RADIXKV_TOKEN) metadata.set("authorization", `Bearer ${process.env.RADIXKV_TOKEN}`);
  const deadline = new Date(Date.now() + 5000);
  return promisify(client[method].bind(client))(request, metadata, { deadline });
}

const client = new radixkv.v1.RouterService(process.argv[2], grpc.credentials.createInsecure());
try {
  const prompt = [0, 1, 2, 3];
  const { matches } = await call(client, "Lookup", { sequence: packed(prompt) });
  for (const match of matches) console.log(`${match.worker} holds ${match.matched_length} tokens`);
  const { picks } = await call(client, "Pick", { sequences: [packed(prompt)] });
  for (const pick of picks) console.log(`send it to ${pick.worker}: ${pick.reason}`);
  // ... when the answer has ended:
  await call(client, "Pick", { finished_pick_ids: picks.map((pick) => pick.pick_id) });
  // A wrong call is refused with a code and words; errors.proto lists the reasons.
  await call(client, "Pick", {}).catch((error) => console.log(`${error.code}: ${error.details}`));
} finally {
  client.close();
}
