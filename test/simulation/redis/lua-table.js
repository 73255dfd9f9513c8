// lua-table.js: a table of Lua. Items from 1 on are in an array; all others are in a map.

/** @typedef {string|number|boolean|Function|LuaTable} Value not nil, which is undefined */

export class LuaTable {
  /** @param {(Value|undefined)[]} [items] from index 1 on, none of them nil */
  constructor(items = []) {
    this.items = items;
    /** @type {Map<Value, Value>|null} */
    this.fields = null;
  }

  /** As a constructor makes it: nil ends the items. @param {any[]} values @returns {LuaTable} */
  static of(values) {
    const table = new LuaTable();
    for (const [i, value] of values.entries()) if (value !== undefined) table.set(i + 1, value);
    return table;
  }

  /** @param {any} key @param {any} value @returns {this} */
  with(key, value) {
    this.set(key, value);
    return this;
  }

  get length() {
    return this.items.length;
  }

  /** @param {any} key @returns {any} */
  get(key) {
    if (typeof key === 'number' && key >= 1 && key <= this.items.length && Number.isInteger(key))
      return this.items[key - 1];
    return this.fields?.get(key);
  }

  /** @param {any} key @param {any} value */
  set(key, value) {
    const { items } = this;
    if (typeof key === 'number' && Number.isInteger(key) && key >= 1 && key <= items.length + 1) {
      if (value !== undefined) {
        items[key - 1] = value;
        if (key === items.length) this.#gather();
        return;
      }
      if (key <= items.length) this.#remove(key);
      return;
    }
    if (value === undefined) this.fields?.delete(key);
    else {
      this.fields ??= new Map();
      this.fields.set(key, value);
    }
  }

  /** Items that were set before those in front of them join the array. */
  #gather() {
    const { items, fields } = this;
    if (fields === null) return;
    for (let value = fields.get(items.length + 1); value !== undefined; ) {
      fields.delete(items.length + 1);
      items.push(value);
      value = fields.get(items.length + 1);
    }
  }

  /** @param {number} key of an item; those behind it become fields */
  #remove(key) {
    const rest = this.items.splice(key - 1);
    for (let i = 1; i < rest.length; i++) this.set(key + i, rest[i]);
  }

  /** @returns {[Value, any][]} */
  entries() {
    /** @type {[Value, any][]} */
    const items = this.items.map((value, i) => [i + 1, value]);
    return this.fields === null ? items : [...items, ...this.fields];
  }
}
