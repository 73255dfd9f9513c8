// global.js: the client as a plain script: dist/fanfare.min.js.

import { Fanfare, FanfareError } from './index.js';

Object.assign(globalThis, { Fanfare, FanfareError });
