// Writes the types of the schemas in docs/openapi.json and docs/admin-openapi.json to the given folder.

import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

for (const [name, file] of [
  ["openapi.json", "schema.ts"],
  ["admin-openapi.json", "admin-schema.ts"],
]) {
  const text = await readFile(new URL(`../../docs/${name}`, import.meta.url), "utf8");
  const { openapi, info, components } = JSON.parse(text);
  const schemas = { openapi, info, paths: {}, components: { schemas: components.schemas } };
  const types = await openapiTS(schemas, { exportType: true });
  await writeFile(
    `${process.argv[2]}/${file}`,
    `// Generated from docs/${name} by \`npm run generate\`.\n\n${astToString(types)}`,
  );
}
