// theme.js: applies the chosen theme before the first paint. A classic script, so that it blocks.

{
  let theme = null;
  try {
    theme = localStorage.getItem('fanfare-theme');
  } catch {
    // Storage is forbidden: the theme of the system applies.
  }
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
}
