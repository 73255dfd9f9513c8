// preload.js: hides the field that TEST_HIDDEN_FIELD names from every module that is loaded after it:
// `TEST_HIDDEN_FIELD=fd node --import ./test/helpers/hidden/preload.js …`.

import * as modules from 'node:module';
import { hide, initialize } from './hooks.js';

const field = process.env.TEST_HIDDEN_FIELD;
/** @typedef {Parameters<typeof hide>[1]} Loaded */
/** Hooks of this thread, which Node 20 does not have; `register` warns on Node 26. */
const { registerHooks } =
  /** @type {{registerHooks?: (hooks: {load: (url: string, context: object, next: (url: string, context: object) => Loaded) => object}) => void}} */ (
    modules
  );

if (registerHooks === undefined) {
  modules.register('./hooks.js', import.meta.url, { data: field });
} else {
  initialize(field);
  registerHooks({ load: (url, context, next) => hide(url, next(url, context)) });
}
