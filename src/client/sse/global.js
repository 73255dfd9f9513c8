// global.js: the client that only listens as a plain script: dist/fanfare-sse.min.js.

import { Fanfare, FanfareError } from './index.js';

Object.assign(globalThis, { Fanfare, FanfareError });
