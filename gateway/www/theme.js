// Loaded as a blocking classic script, so that the theme is there before the first paint. <html data-theme> is always
// light or dark: the stored choice, else the system's. settings.js sends 'sluice-theme' when the choice changes.
'use strict';
(() => {
  const root = document.documentElement;
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const read = (name) => {
    try { return localStorage.getItem(`sluice.v1.${name}`); } catch { return null; }
  };
  const apply = () => {
    const choice = read('theme');
    root.dataset.theme = choice === 'light' || choice === 'dark' ? choice : dark.matches ? 'dark' : 'light';
  };
  dark.addEventListener('change', apply);
  addEventListener('sluice-theme', apply);
  apply();
  if (read('sidebar') === 'closed') root.dataset.sidebar = 'closed';
})();
