"""The page of an auction: its bids with their prices, the standing price over time, and the end of bidding."""

from demo import Demo, free_port

# Pure functions, each against a value that was worked out by hand. Gives those that differ.
FUNCTIONS = """
  const { asBidding, bidders, bidsOf, drawBid, drawBiddingEnd, endOf, isAuction, lineOf, pricesOver } = await import('/console/auction.js');
  const wrong = [];
  const is = (name, found, wanted) => { if (JSON.stringify(found) !== JSON.stringify(wanted)) wrong.push([name, found, wanted]); };
  const said = (at, from, disposition, score) => ({ at, what: 'message', from, act: 'offer', disposition, score });
  const bid = (at, bid_no, by, price) => ({ at, what: 'bid', bid_no, by, price });
  const text = ([kind, tint, ...content]) => { const node = document.createElement('p'); node.append(...content); return `${kind} ${tint} ${node.textContent}`; };

  // Bid 2 was left out, of bid 3 the message was; bid 5 has not been told yet.
  const entries = [{ at: 100, what: 'called', protocol: 'english_auction' }, said(110, 'a', 'ok', 1), said(111, 'b', 'policy_reject', null),
    bid(115, 1, 'a', 41000000), bid(135, 3, 'b', 43250000), said(140, 'a', 'ok', 4), bid(142, 4, 'a', 46000000), said(150, 'b', 'ok', 5)];
  const bids = bidsOf(entries);
  is('an auction', [isAuction(entries), isAuction(entries.slice(3, 4)), isAuction([{ what: 'called', protocol: 'contract_net' }, entries[1]])], [true, true, false]);
  is('bids with the time of their messages', [...bids.values()].map((one) => [one.bid_no, one.by, one.at]), [[1, 'a', 110], [3, 'b', 135], [4, 'a', 140]]);
  const told = entries.map((entry) => asBidding(entry, bids));
  is('a bid is told once', told.map((entry) => entry && entry.what), ['called', 'bid', 'message', null, 'bid', 'bid', null, 'bid']);
  is('and one that does not count as a bid', [told[2].act, told[2].disposition], ['bid', 'policy_reject']);
  is('with its price', [1, 4, 5, 7].map((index) => text(drawBid(told[index]))), ['bid  Bid 1: 41.00 of a', 'bid  Bid 3: 43.25 of b', 'bid  Bid 4: 46.00 of a', 'bid  Bid 5 of b']);
  const end = asBidding({ what: 'closed', reason: 'window', offers: 2, expected: 3 }, bids);
  is('the end of bidding', [end.what, text(drawBiddingEnd(end))], ['bidding_ended', 'closed  End of bidding nobody bid any more 2 of 3 bidders with a bid']);
  is('columns', pricesOver([...bids.values()], 'a', 100, 190), [[10, 35, 40, 90], [41, 43.25, 46, 46], [41, null, 46, null], [null, 43.25, null, null]]);
  is('time never runs back', pricesOver([bid(150, 1, 'a', 1e6), bid(149, 2, 'b', 2e6)], 'b', 100, 120)[0], [50, 50, 50]);
  const line = (more) => lineOf([...bids.values()], 100, endOf([...entries, ...more]));
  is('how it stands', line([]), '4 bids, of which the journal holds 3; 46.00 of a stands.');
  const ended = { at: 2000100, what: 'ended', outcome: 'cancelled' };
  is('how it ended', [line([ended]), line([{ at: 1000100, what: 'closed', reason: 'deadline' }, ended])].map((text) => text.split('a was the last. ')[1]),
    ['Bidding ended after 2.0 s: cancelled.', 'Bidding ended after 1.0 s: the time was over.']);
  const decided = { winners: ['a'], ranked: [{ contractor: 'a', score: 4 }, { contractor: 'b', score: 3 }, { contractor: 'c', score: 2 }] };
  const rows = (terms) => [...bidders(decided, bids, terms).querySelectorAll('tr')].map((row) => [...row.children].map((cell) => cell.textContent).join(' '));
  is('bidders', rows(new Map()), ['1 a 4 46.00 wins', '2 b 3 43.25 ', '3 c 2 left out ']);
  is('and what the initiator is told', rows(new Map([['c', { price: 42000000 }]]))[2], '3 c 2 42.00 ');
  return wrong"""

# The page shows what the journal holds: differences between both.
SHOWN = """const c = document.getElementById('auction-chart').uplot;
  const known = (column) => column.filter((value) => value !== null).length;
  return c && [known(c.data[1]) - 1, known(c.data[2]) + known(c.data[3]), c.data[0].at(-1)]"""


def functions(check):
    wrong = check.browser.wait_for(FUNCTIONS)
    check.holds("bids, prices, columns and bidders are those worked out by hand", wrong == [], wrong)


def auctions_are_drawn(check, llmx, opened_ended, looks_right):
    demo = Demo(llmx, free_port(), 120, "--protocol", "auction", "--rate", "2")
    try:
        opened_ended(check, demo, "completed", "an auction")
        page_of_an_auction(check)
        looks_right(check, "an auction")
        check.shoot_extra("auction-1280.png")
    finally:
        demo.kill()


def page_of_an_auction(check):
    """The page that is open, of an auction that has ended."""
    functions(check)
    check.has_axes("the standing price", "auction-chart", "0|[\\d.,]+ (\u00b5s|ms|s|min)", r"[\d.]+", 5)
    bids, points, end = check.browser.run(SHOWN)
    check.holds("each bid is a point on the price's line, up to the end of bidding", bids == points >= 5 and end > 0, (bids, points, end))
    check.until("the legend names the leader and the end", "return /the end of bidding.*the leader.*others/.test(document.getElementById('auction-legend').textContent)")
    check.until("the line tells how bidding ended", "return /^[\\d,]+ bids.*was the last\\. Bidding ended after/.test(document.getElementById('auction-line').textContent)")
    for kind, needle in [("called", "english auction"), ("bid", "Bid 1: "), ("closed", "End of bidding"), ("decided", "wins"), ("ended", "completed")]:
        check.until(f"the timeline tells: {kind}, {needle}",
                    "return [...document.querySelectorAll(`[data-kind=\"${arguments[0]}\"]`)].some((e) => e.textContent.includes(arguments[1]))", kind, needle)
    check.holds("and no bid as an offer", check.browser.run("return ![...document.querySelectorAll('#timeline-body .what > strong')].some((e) => e.textContent === 'offer')"))
    check.holds("bidders stand with their last prices", check.browser.run("return document.querySelectorAll('#timeline-ranking .winner').length") == 1
                and "price of its last bid" in check.text("timeline-ranking"), check.text("timeline-ranking"))
