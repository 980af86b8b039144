"""The Python client: list, watch with resume, create, patch, delete."""

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

config.load_kube_config()
api = client.CoreV1Api()


def names(configmaps):
    return [item.metadata.name for item in configmaps.items]


def configmap(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"app": "python"}), data=data)


# Create, and what a conflict looks like.
for name in ("one", "two", "three"):
    created = api.create_namespaced_config_map("default", configmap(name, k="1"))
    assert created.metadata.uid and created.metadata.resource_version, created
try:
    api.create_namespaced_config_map("default", configmap("one"))
    raise AssertionError("a name can be taken twice")
except ApiException as error:
    assert error.status == 409 and error.reason == "Conflict", error

# Lists: selected, in pages, across namespaces.
listed = api.list_namespaced_config_map("default", label_selector="app=python")
assert names(listed) == ["one", "three", "two"], names(listed)
page = api.list_namespaced_config_map("default", limit=2)
assert page.metadata._continue and page.metadata.remaining_item_count == 1, page.metadata
rest = api.list_namespaced_config_map("default", limit=2, _continue=page.metadata._continue)
assert names(rest) == ["two"], names(rest)
assert names(api.list_config_map_for_all_namespaces(field_selector="metadata.name=two")) == ["two"]

# Three kinds of changes.
patched = api.patch_namespaced_config_map("one", "default", {"data": {"p": "1"}})
assert patched.data == {"k": "1", "p": "1"}, patched.data
patched = api.patch_namespaced_config_map("one", "default", [{"op": "remove", "path": "/data/p"}])
assert patched.data == {"k": "1"}, patched.data
patched.data["r"] = "1"
replaced = api.replace_namespaced_config_map("one", "default", patched)
assert replaced.data["r"] == "1", replaced
try:
    api.replace_namespaced_config_map("one", "default", patched)
    raise AssertionError("an old version can be replaced")
except ApiException as error:
    assert error.status == 409, error

# A watch from the list's version sees what happened since; another resumes where it ended.
since = listed.metadata.resource_version
stream = watch.Watch()
seen = []
for event in stream.stream(api.list_namespaced_config_map, "default", resource_version=since, timeout_seconds=2):
    seen.append((event["type"], event["object"].metadata.name))
assert seen == [("MODIFIED", "one")] * 3, seen
api.delete_namespaced_config_map("two", "default")
resumed = []
for event in stream.stream(
    api.list_namespaced_config_map, "default", resource_version=stream.resource_version, timeout_seconds=2
):
    resumed.append((event["type"], event["object"].metadata.name))
assert resumed == [("DELETED", "two")], resumed

# A version that is gone is said to be: the client raises 410.
try:
    for _ in watch.Watch().stream(api.list_namespaced_config_map, "default", resource_version="1", timeout_seconds=1):
        pass
except ApiException as error:
    assert error.status == 410, error

# Deletion of one and of all, and of what is not there.
gone = api.delete_namespaced_config_map("one", "default")
assert gone.status == "Success", gone
api.delete_collection_namespaced_config_map("default", label_selector="app=python")
assert names(api.list_namespaced_config_map("default")) == []
try:
    api.read_namespaced_config_map("one", "default")
    raise AssertionError("what is deleted can be read")
except ApiException as error:
    assert error.status == 404, error

# Another group, a subresource, and a table of versions.
apps = client.AppsV1Api()
body = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}},
    },
}
apps.create_namespaced_deployment("default", body)
scaled = apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 3}})
assert scaled.spec.replicas == 3, scaled
assert apps.read_namespaced_deployment("web", "default").spec.replicas == 3
assert client.VersionApi().get_code().minor == "36"
print("the Python client is at home")
