// The JavaScript client's informer: it lists, follows, and comes back after its connection ended.

import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const api = config.makeApiClient(k8s.CoreV1Api);
const namespace = 'default';
const path = `/api/v1/namespaces/${namespace}/configmaps`;

const events = [];
const waiting = [];
function note(event) {
  events.push(event);
  waiting.splice(0).forEach((wake) => wake());
}

// Waits until something that was not seen yet has happened.
async function happens(event) {
  const late = AbortSignal.timeout(20_000);
  while (!events.includes(event)) {
    assert(!late.aborted, `${event} does not happen: ${events}`);
    await new Promise((wake) => {
      waiting.push(wake);
      setTimeout(wake, 1000);
    });
  }
  events.splice(events.indexOf(event), 1);
}

const create = (name) => api.createNamespacedConfigMap({ namespace, body: { metadata: { name }, data: { k: '1' } } });

await create('before');
const informer = k8s.makeInformer(config, path, () => api.listNamespacedConfigMap({ namespace }));
for (const type of ['add', 'update', 'delete']) {
  informer.on(type, (object) => note(`${type} ${object.metadata.name}`));
}
// A watch that ends is started again, as the client's documentation says.
informer.on('error', (error) => {
  note(`error ${error.code ?? error.message}`);
  setTimeout(() => informer.start(), 10);
});
await informer.start();
await happens('add before');

const created = await create('after');
await happens('add after');
created.data.k = '2';
await api.replaceNamespacedConfigMap({ name: 'after', namespace, body: created });
await happens('update after');
assert.equal(informer.get('after', namespace).data.k, '2');
await api.deleteNamespacedConfigMap({ name: 'before', namespace });
await happens('delete before');
assert.deepEqual(informer.list(namespace).map((object) => object.metadata.name), ['after']);

const patched = await api.patchNamespacedConfigMap(
  { name: 'after', namespace, body: [{ op: 'replace', path: '/data/k', value: '3' }] },
  k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.JsonPatch),
);
assert.equal(patched.data.k, '3');
await happens('update after');
await assert.rejects(api.readNamespacedConfigMap({ name: 'nosuch', namespace }), (error) => error.code === 404);
await informer.stop();
console.log('the JavaScript client is at home');
process.exit(0);
