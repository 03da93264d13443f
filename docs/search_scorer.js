// Pages for those who use the package come before those about it: the score of a result of Sphinx's search.
const ABOUT = /^(CHANGELOG|CONTRIBUTING|CODE_OF_CONDUCT|benchmarks\/|docs\/(architecture|benchmarks|development|README)$)/;

var Scorer = {
  score: ([docname, title, anchor, descr, score]) => (ABOUT.test(docname) ? score / 10 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
