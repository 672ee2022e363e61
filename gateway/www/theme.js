// Loaded as a blocking classic script, so that a chosen theme is there before the first paint.
'use strict';
(() => {
  try {
    const theme = localStorage.getItem('sluice.v1.theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
    if (localStorage.getItem('sluice.v1.sidebar') === 'closed') document.documentElement.dataset.sidebar = 'closed';
  } catch {
    // Storage may be forbidden; the page then follows the system.
  }
})();
