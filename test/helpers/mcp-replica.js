// mcp-replica.js: a replica of an MCP server, for tests. Its tool reports progress, and answers when
// the test posts to /release. Arguments: URL of Fanfare, API key, port.

import { createServer as createHttpServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { FanfareEventStore } from '../../src/ai/index.js';
import { createServer } from '../../src/sdk/index.js';

const [, , url, apiKey, port] = process.argv;
const fanfare = createServer({ url, apiKey });
/** Sessions that this replica runs. @type {Map<string, StreamableHTTPServerTransport>} */
const sessions = new Map();
/** @type {(value?: unknown) => void} */
let release = () => {};
const released = new Promise((resolve) => {
  release = resolve;
});

async function connected(/** @type {StreamableHTTPServerTransport} */ transport) {
  const server = new McpServer({ name: 'replica', version: '1' });
  server.registerTool('work', { description: 'works' }, async (extra) => {
    const { progressToken = '' } = extra._meta ?? {};
    for (let progress = 1; progress <= 5; progress++) {
      const params = { progressToken, progress, total: 5 };
      await extra.sendNotification({ method: 'notifications/progress', params });
      // The client comes back with the id of its last event, to any replica.
      if (progress === 1) extra.closeSSEStream?.();
    }
    await released;
    return { content: [{ type: 'text', text: `done by ${process.pid}` }] };
  });
  await server.connect(/** @type {any} */ (transport));
  return transport;
}

/** A session of this replica. */
async function begin() {
  const sessionId = crypto.randomUUID();
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: () => sessionId,
    onsessioninitialized: () => void sessions.set(sessionId, transport),
    eventStore: new FanfareEventStore(fanfare, sessionId),
  });
  return connected(transport);
}

createHttpServer(async (request, response) => {
  const { method, headers } = request;
  if (request.url === '/release') {
    release();
    return response.end();
  }
  if (request.url === '/alive') return response.end(String(process.pid));
  const id = headers['mcp-session-id'];
  let transport = typeof id === 'string' ? sessions.get(id) : await begin();
  const isResumed = method === 'GET' && headers['last-event-id'] !== undefined;
  if (transport === undefined && isResumed) {
    console.log('resumes');
    transport = await connected(
      new StreamableHTTPServerTransport({
        sessionIdGenerator: undefined,
        eventStore: new FanfareEventStore(fanfare, String(id), { waitMs: 60_000 }),
      }),
    );
  }
  if (transport === undefined) response.writeHead(method === 'GET' ? 405 : 404).end();
  else await transport.handleRequest(request, response);
}).listen(Number(port), '127.0.0.1', () => console.log('ready'));
