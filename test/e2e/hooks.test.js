// hooks.test.js: hooks of a JavaScript file on real servers.

import { fileURLToPath } from 'node:url';
import { startServer } from '../harness/server.js';
import { testHooks } from './hooks-suite.js';

const HOOKS = fileURLToPath(new URL('../helpers/hooks/all.js', import.meta.url));

testHooks({
  name: 'a file',
  start: (t, env) => startServer(t, { FANFARE_HOOKS: HOOKS, ...env }),
  left: (server, name) => server.line(({ msg, user }) => msg === 'onDisconnect' && user === name),
  thrown: 'throw',
});
