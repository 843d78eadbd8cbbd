// Makes the calls of a plan with the npm package `@modelcontextprotocol/client`, and prints what it got as JSON.
// Arguments, environment and output are those of client.py. ERA is `legacy` (what the package does by itself) or
// `modern`. The package compares every result with the tool's output schema, and throws where they differ.
import { readFileSync } from "node:fs";
import { Client, ProtocolError, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const PAGES_MAX = 200;
const [plan, era, target, ...rest] = process.argv.slice(2);

function transport() {
  if (target.startsWith("http")) {
    const headers = { Authorization: `Bearer ${process.env.BELLBIRD_KEY}` };
    return new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers } });
  }
  return new StdioClientTransport({ command: target, args: rest, env: process.env });
}

async function call(client, name, args) {
  try {
    const result = await client.callTool({ name, arguments: args });
    return {
      text: result.content.map((block) => block.text).join("\n"),
      structured: result.structuredContent,
      isError: result.isError ?? false,
    };
  } catch (error) {
    if (error instanceof ProtocolError) return { code: error.code, message: error.message };
    throw error;
  }
}

async function calls(client, step) {
  const answers = [];
  const args = { ...step.arguments };
  while (answers.length < PAGES_MAX) {
    answers.push(await call(client, step.tool, args));
    const cursor = answers.at(-1).structured?.next_cursor;
    if (!step.pages || cursor == null) return answers;
    args.cursor = cursor;
  }
  throw new Error(`${step.tool}: no end after ${PAGES_MAX} pages`);
}

const negotiation = era === "modern" ? { versionNegotiation: { mode: "auto" } } : {};
const client = new Client({ name: "bellbird-check", version: "1" }, negotiation);
await client.connect(transport());
const { tools } = await client.listTools();
const answers = [];
for (const step of JSON.parse(readFileSync(plan, "utf8"))) answers.push(await calls(client, step));
const revision = client.getNegotiatedProtocolVersion();
const greeting = { instructions: client.getInstructions(), serverInfo: client.getServerVersion() };
process.stdout.write(JSON.stringify({ revision, greeting, tools, answers }));
await client.close();
