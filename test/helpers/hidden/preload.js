// preload.js: hides the field that TEST_HIDDEN_FIELD names from every module that is loaded after it:
// `TEST_HIDDEN_FIELD=fd node --import ./test/helpers/hidden/preload.js …`.

import { register } from 'node:module';

register('./hooks.js', import.meta.url, { data: process.env.TEST_HIDDEN_FIELD });
