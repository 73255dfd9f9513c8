// global.js: the client of all tabs as a plain script: dist/fanfare-shared.min.js.

import { Fanfare, FanfareError } from './index.js';

Object.assign(globalThis, { Fanfare, FanfareError });
