// Of the site's search: pages that say how come first, measured results and changes last. The numbers are those of Sphinx.
var Scorer = {
  score: ([page, , , , score]) => score + (/^\.docs\/(howto\/(?!index)|start|choose)/.test(page) ? 12 : /^(data|CHANGELOG)/.test(page) ? -12 : 0),
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
