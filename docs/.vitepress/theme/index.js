// index.js: the theme: VitePress's own with the system's fonts, and what Fanfare's pages add to it.

import Theme from 'vitepress/theme-without-fonts';
import FanOut from './FanOut.vue';
import FilterRows from './FilterRows.vue';
import Layout from './Layout.vue';
import PlayGround from './PlayGround.vue';
import Shot from './Shot.vue';
import StartPage from './StartPage.vue';
import './style.css';

export default {
  extends: Theme,
  Layout,
  enhanceApp({ app }) {
    for (const [name, component] of Object.entries({
      FanOut,
      FilterRows,
      PlayGround,
      Shot,
      StartPage,
    }))
      app.component(name, component);
  },
};
