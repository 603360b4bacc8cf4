"""The utility plane of a bargain: its figures by hand, its address, and that everybody can use it."""

import json

from demo import Demo, free_port
from haggle import OFFERS, haggle

WIDE, NARROW = (1280, 800), (390, 844)
# Ben: price 50, fetched_by 30, months 20; shop: 60, 10, 30. Price 100 to 200, months 0 to 12, seller before buyer.
ADDRESS = "x=ben&y=shop&of.ben=price:50:less,fetched_by:30:less,months:20:more&of.shop=price:60:more,fetched_by:10:more,months:30:less"
# Turn 3: ben .5*.8 + .3 + .2, shop .6*.2; turn 4: .5*.2 + .3 and .6*.8 + .3; turn 5: .5*.6 + .3 + .2*.5 and .6*.4 + .3*.5.
BY_HAND = [[1, 1.0, 0.0], [2, 0.0, 1.0], [3, 0.9, 0.12], [4, 0.4, 0.78], [5, 0.7, 0.39]]
# With equal weights what one gains the other loses. Turn 3: (.8 + 1 + 1) / 3; turn 4: (.2 + 1 + 0) / 3; turn 5: (.6 + 1 + .5) / 3.
EQUALLY = [[1, 1.0, 0.0], [2, 0.0, 1.0], [3, 0.933, 0.067], [4, 0.4, 0.6], [5, 0.7, 0.3]]
POINTS = """return [...document.querySelectorAll('#plane-chart .offer')]
  .map((e) => [Number(e.dataset.turn), Number(Number(e.dataset.x).toFixed(3)), Number(Number(e.dataset.y).toFixed(3))])"""
WEIGHTS = "return [...document.querySelectorAll('#plane-form input')].map((e) => Number(e.value))"

# Pure functions, each against a value that was computed by hand. Gives the names of those that differ.
FUNCTIONS = """
  const u = await import('/console/utility.js');
  const wrong = [];
  const is = (name, found, wanted) => { if (JSON.stringify(found) !== JSON.stringify(wanted)) wrong.push([name, found, wanted]); };
  const offer = (turn, by, terms) => ({ turn, by, terms, isAgreed: false });
  const entry = (step, by, terms) => ({ what: 'proposed', step, by, terms });
  const wish = (weight, wants) => ({ weight, wants });

  const rules = { what: 'rules', parties: ['a', 'b'], issues: [{ name: 'n', min: 10, max: 20 }, { name: 't', values: ['p', 'q', 'r'] }] };
  const offers = [offer(1, 'a', { n: 10, t: 'p' }), offer(2, 'b', { n: 20, t: 'r' }), offer(3, 'a', { n: 15, t: 'p' })];
  const known = u.issuesOf(offers, rules);
  const seen = u.issuesOf([offer(1, 'a', { n: 12, t: 'q', same: 1 }), offer(2, 'b', { n: 18, t: 'p', same: 1 })]);
  is('issues of the rules', known, [{ name: 'n', isPublic: true, isNumber: true, least: 10, most: 20 }, { name: 't', isPublic: true, isNumber: false, values: ['p', 'q', 'r'] }]);
  is('issues that were seen, and none on which offers agree', seen, [{ name: 'n', isPublic: false, isNumber: true, least: 12, most: 18 }, { name: 't', isPublic: false, isNumber: false, values: ['q', 'p'] }]);
  is('texts that are numbers have their order', u.issuesOf([offer(1, 'a', { v: '99.9' }), offer(2, 'b', { v: '9.5' })])[0].values, ['9.5', '99.9']);
  is('of too many values those that were seen', u.issuesOf(offers, { issues: [{ name: 'n', values: [] }] })[0], { name: 'n', isPublic: false, isNumber: true, least: 10, most: 20 });

  const wishes = new Map([['n', wish(60, 'less')], ['t', wish(20, 'more')]]);
  is('utility', u.utility(known, wishes, { n: 12, t: 'q' }), 0.725);
  is('without weights issues count alike', u.utility(known, new Map([['n', wish(0, 'less')], ['t', wish(0, 'more')]]), { n: 12, t: 'q' }), 0.65);
  const read = (map) => [...map].map(([party, issues]) => [party, [...issues].map(([name, one]) => [name, one.weight, one.wants])]);
  is('opposed, as the first offers say', read(u.equalWishes(known, offers, ['a', 'b'])), [['a', [['n', 50, 'less'], ['t', 50, 'less']]], ['b', [['n', 50, 'more'], ['t', 50, 'more']]]]);
  is('opposed, whoever offered high', read(u.equalWishes(known, [offer(1, 'a', { n: 20, t: 'p' }), offer(2, 'b', { n: 10, t: 'p' })], ['a', 'b'])), [['a', [['n', 50, 'more'], ['t', 50, 'less']]], ['b', [['n', 50, 'less'], ['t', 50, 'more']]]]);
  // a gave up half of n and nothing of t: .55 and 1.05 of 1.6. b offered once.
  is('guessed', read(u.guessedWishes(known, offers, ['a', 'b'])), [['a', [['n', 34, 'less'], ['t', 66, 'less']]], ['b', [['n', 50, 'more'], ['t', 50, 'more']]]]);

  const points = [[0, 1], [0.5, 0.5], [0.4, 0.5], [1, 0], [0.5, 0.4], [0.5, 0.5]].map(([x, y]) => ({ x, y }));
  is('frontier', u.frontier(points), [0, 1, 5, 3]);
  is('frontier of one', u.frontier([{ x: 0, y: 0 }]), [0]);
  is('greatest product, the first of equals', u.nash(points), 1);
  is('no product', u.nash([{ x: 0, y: 1 }]), -1);
  const two = ['one', 'two'].map((name) => ({ name, isPublic: true, isNumber: false, values: ['p', 'q'] }));
  const [more, less] = [new Map([['one', wish(75, 'less')], ['two', wish(25, 'less')]]), new Map([['one', wish(25, 'more')], ['two', wish(75, 'more')]])];
  is('frontier of the outcome space', u.spaceFrontier(two, more, less), [{ x: 0, y: 1 }, { x: 0.75, y: 0.75 }, { x: 1, y: 0 }]);
  is('outcomes', [u.outcomes(two), u.outcomes(known), u.outcomes(seen)], [4, 33, null].map((n) => n ?? undefined));
  is('none where values are unknown', u.spaceFrontier(seen, wishes, wishes), undefined);
  // Against looking at every outcome: 11 * 3 of them, under wishes that are partly common.
  const other = new Map([['n', wish(30, 'more')], ['t', wish(50, 'more')]]);
  const all = [...Array(11).keys()].flatMap((n) => ['p', 'q', 'r'].map((t) => ({ n: 10 + n, t }))).map((terms) => ({ x: u.utility(known, wishes, terms), y: u.utility(known, other, terms) }));
  const near = (list) => list.map(({ x, y }) => `${x.toFixed(6)} ${y.toFixed(6)}`);
  is('the frontier of sums is that of all outcomes', near(u.spaceFrontier(known, wishes, other)), near(u.frontier(all).map((index) => all[index])));

  const assumed = { x: 'a', y: 'b', wishes: new Map([['a', wishes]]) };
  is('address', u.writeAssumed(assumed), 'x=a&y=b&of.a=n:60:less,t:20:more');
  is('and back', u.writeAssumed(u.readAssumed(u.writeAssumed(assumed))), u.writeAssumed(assumed));
  const hostile = u.readAssumed('x=%zz&of.a=n:101:less,t:-1:more,u:5:sideways,v:5,w:5:less:more,ok:7:more&&=&of.=&__proto__=1');
  is('what is no weight is left out', read(hostile.wishes), [['a', [['ok', 7, 'more']]], ['', []]]);

  const agreed = { what: 'agreed', by: 'a', step: 4, round: 2, terms: { t: 'p', n: 15 } };
  const story = [rules, entry(1, 'a', { n: 10, t: 'p' }), entry(2, 'b', { n: 20, t: 'r' }), entry(3, 'a', { n: 15, t: 'p' })];
  is('the agreement is the offer that stood', u.offersOf([...story, agreed]).map((one) => [one.turn, one.isAgreed]), [[1, false], [2, false], [3, true]]);
  is('or one that was accepted before it stood', u.offersOf([...story.slice(0, 3), agreed]).map((one) => [one.turn, one.by, one.isAgreed]), [[1, 'a', false], [2, 'b', false], [3, 'a', true]]);
  is('parties', u.partiesOf([offer(1, 'b', {})], rules), ['b', 'a']);
  return wrong"""


def functions(check):
    wrong = check.browser.wait_for(FUNCTIONS)
    check.holds("utilities, frontiers, products and addresses are those computed by hand", wrong == [], wrong)


def open_at(check, demo, negotiation, assumed):
    """Opens the page cold, at an address that assumes something, or nothing."""
    check.browser.go("about:blank")
    check.browser.go(f"{demo.url}/#/negotiations/{negotiation}{assumed}")
    check.until("the plane is drawn", f"return document.querySelectorAll('#plane-chart .offer').length === {len(OFFERS)} && document.querySelector('#plane-chart .agreement') !== null")


def figures(check, expected, what):
    browser = check.browser
    found = browser.run(POINTS)
    check.holds(f"each offer is a point where hand computation puts it: {what}", found == expected, found)
    table = browser.run("""return [...document.querySelectorAll('#plane-list tr')].map((row) => [0, 3, 4].map((i) => Number(row.children[i].textContent)))""")
    check.holds(f"the table says the same: {what}", table == expected, table)


def known_bargain(check, demo, negotiation, where):
    browser = check.browser
    open_at(check, demo, negotiation, "")
    figures(check, EQUALLY, f"equal weights, {where}")
    check.holds("it is labelled as assumed, and says why", "assumed weights" in check.text("plane-title") and "sealed" in check.text("plane-panel"))
    check.holds("and that opposed wishes make a line", "lies on one line" in check.text("plane-note"), check.text("plane-note"))
    open_at(check, demo, negotiation, f"?{ADDRESS}")
    # Issues come in the order of their names.
    check.holds("the weights of the address are taken", browser.run(WEIGHTS) == [30, 20, 50, 10, 30, 60], browser.run(WEIGHTS))
    figures(check, BY_HAND, where)
    rings = browser.run("return ['agreement', 'nash'].map((kind) => Number(document.querySelector(`#plane-chart .ring.${kind}`).dataset.turn))")
    # Products: .108, .312 and .273.
    check.holds("the agreement and the greatest product are marked", rings == [5, 4], rings)
    note = check.text("plane-note")
    check.holds("it says which frontier is drawn", "outcome space, 600,000,006 outcomes, ranges in 200 steps" in note, note)
    shapes = browser.run("return [...document.querySelectorAll('#plane-chart .offer')].map((e) => [e.classList[1], e.lastChild.tagName].join(' '))")
    check.holds("parties have colours and shapes of their own", shapes == ["s1 circle", "s2 polygon"] * 2 + ["s1 circle"], shapes)
    check.tab_to("a weight", "e.id === 'plane-x-price'")
    browser.run("document.activeElement.select(); return null")
    browser.press("1", "0")
    check.until("a weight that is typed moves the points, and stands in the address",
                f"{POINTS.replace('return', 'const p =')}; return p[2][1] === 0.967 && location.hash.includes('of.ben=fetched_by:30:less,months:20:more,price:10:less')")
    check.tab_to("what is wanted", "e.id === 'plane-x-price-wants'", 3)
    browser.press("ArrowDown")
    check.until("so does what is wanted", f"{POINTS.replace('return', 'const p =')}; return p[2][1] === 0.867 && location.hash.includes('price:10:more')")
    browser.post("/refresh")
    check.until("and a reload restores both", f"{POINTS.replace('return', 'const p =')}; return p.length === 5 && p[2][1] === 0.867 && document.getElementById('plane-x-price').value === '10'")
    check.tab_to("the table of the plane", "e.getAttribute('aria-label') === 'Table of the plane'")
    check.tab_to("equal weights", "e.id === 'plane-equal'")
    browser.press("Enter")
    check.until("equal weights are a button away", f"{POINTS.replace('return', 'const p =')}; return JSON.stringify(p) === JSON.stringify(arguments[0])", EQUALLY)
    open_at(check, demo, negotiation, f"?{ADDRESS}")
    check.fits(f"{where}, a utility plane")
    check.accessible(f"{where}, a utility plane")
    for scheme in ("light", "dark"):
        check.readable(scheme, f"{where}, a utility plane")
        check.shoot_extra(f"plane-{where[:4].strip()}-{scheme}.png", scheme)


def points_are_offers(check, demo, chosen):
    """Of any bargain: as many points as its journal holds offers."""
    status, text = demo.get(f"/v1/console/negotiations/{chosen}", demo.token)
    entries = json.loads(text)["entries"]
    offers = [entry for entry in entries if entry["what"] == "proposed"]
    agreed = [entry for entry in entries if entry["what"] == "agreed"]
    missing = [entry for entry in agreed if not any(offer["by"] == entry["by"] and offer["terms"] == entry["terms"] for offer in offers)]
    found = check.browser.run(POINTS)
    check.holds("points are the offers of the journal", status == 200 and len(found) == len(offers) + len(missing) and all(0 <= x <= 1 and 0 <= y <= 1 for _, x, y in found), found)


def planes(check, llmx):
    # Few negotiations beside it, so that none makes the engine forget it.
    demo = Demo(llmx, free_port(), 200, "--rate", "0.5")
    try:
        check.browser.go("about:blank")
        check.only_network("between two demos, again")
        check.browser.go(f"{demo.url}/#token={demo.token}")
        functions(check)
        negotiation = haggle(demo, llmx)
        known_bargain(check, demo, negotiation, "1280 wide")
        check.browser.size(*NARROW, is_mobile=True)
        known_bargain(check, demo, negotiation, "390 wide")
        check.browser.size(*WIDE)
        check.quiet("a utility plane")
    finally:
        demo.kill()
