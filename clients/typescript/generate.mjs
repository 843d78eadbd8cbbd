// Writes the types of the schemas in docs/openapi.json to the given file.

import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const document = JSON.parse(
  await readFile(new URL("../../docs/openapi.json", import.meta.url), "utf8"),
);
const { openapi, info, components } = document;
const schemas = { openapi, info, paths: {}, components: { schemas: components.schemas } };
const types = await openapiTS(schemas, { exportType: true });
await writeFile(
  process.argv[2],
  `// Generated from docs/openapi.json by \`npm run generate\`.\n\n${astToString(types)}`,
);
