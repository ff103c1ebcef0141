// One run of the story: so many orders of one unit, over all replicas in turn. It is started by
// load/oversell-k6, which makes the item, names it in the environment, and asks the ledger
// afterwards. A refusal is an answer of the shop, so it is counted apart and never as a failure.
import exec from 'k6/execution';
import http from 'k6/http';
import { Counter } from 'k6/metrics';
import { problemOf } from './problem.js';

const baseUrls = __ENV.BASE_URLS.split(',');
const headers = Object.assign(JSON.parse(__ENV.HEADERS), { 'Content-Type': 'application/json' });

export const options = {
  scenarios: {
    orders: {
      executor: 'shared-iterations',
      vus: Number(__ENV.CONNECTIONS),
      iterations: Number(__ENV.ORDERS),
      maxDuration: `${__ENV.MAX_SECONDS}s`,
      gracefulStop: '0s',
    },
  },
  maxRedirects: 0,
  summaryTrendStats: ['p(99)'],
};

http.setResponseCallback(http.expectedStatuses(201, 409, 423, 503));

const accepted = new Counter('orders_accepted');
const refused = {
  'sold-out': new Counter('orders_sold_out'),
  'lock-busy': new Counter('orders_lock_busy'),
  'lock-timeout': new Counter('orders_lock_timeout'),
};

export default function order() {
  const turn = exec.scenario.iterationInTest;
  const answer = http.post(`${baseUrls[turn % baseUrls.length]}/api/orders`, __ENV.BODY, {
    headers: Object.assign({ 'Idempotency-Key': `${__ENV.RUN}-${turn}` }, headers),
    timeout: `${__ENV.ANSWER_TIMEOUT_S}s`,
  });
  const problem = answer.status === 201 ? '' : problemOf(answer);
  if (answer.status === 201) accepted.add(1);
  else if (refused[problem]) refused[problem].add(1);
  else console.error(`status ${answer.status} ${problem || answer.error || ''}`.trim());
}

export function handleSummary(data) {
  const sum = (name) => (data.metrics[name] ? data.metrics[name].values.count : 0);
  const duration = data.metrics.http_req_duration;
  return {
    [__ENV.SUMMARY]: JSON.stringify({
      accepted: sum('orders_accepted'),
      refused: {
        'sold out': sum('orders_sold_out'),
        'lock busy': sum('orders_lock_busy'),
        'lock timeout': sum('orders_lock_timeout'),
      },
      seconds: data.state.testRunDurationMs / 1000,
      p99_ms: duration ? duration.values['p(99)'] : 0,
    }),
  };
}
