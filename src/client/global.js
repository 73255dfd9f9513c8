// global.js: the client as a plain script: the pack script bundles it to dist/fanfare.min.js.

import { Fanfare, FanfareError } from './index.js';

Object.assign(globalThis, { Fanfare, FanfareError });
