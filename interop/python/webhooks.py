"""Webhooks written in Python: they change and refuse objects, are slow, fail, cause what they are asked about, and convert custom resources."""

import base64
import http.server
import json
import pathlib
import ssl
import subprocess
import threading
import time

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

config.load_kube_config()
core, admission = client.CoreV1Api(), client.AdmissionregistrationV1Api()
asked = []


def patch(*operations):
    return {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}


def label(request):
    labels = request["object"]["metadata"].get("labels", {})
    return patch({"op": "add", "path": "/metadata/labels", "value": {**labels, "seen-by": "python"}})


def refuse(request):
    allowed = (request["object"].get("data") or {}).get("secret") is None
    return {"allowed": allowed, "status": {"code": 403, "reason": "Forbidden", "message": "no secrets in ConfigMaps"}}


def slow(_):
    time.sleep(3)
    return {}


def panics(_):
    raise RuntimeError("as a bug would")


def causes(request):
    """Creates an object of the kind that it is asked about: it is asked about that too, and must not wait for itself."""
    name = request["object"]["metadata"]["name"]
    if not name.startswith("caused-"):
        core.create_namespaced_config_map("default", configmap(f"caused-{name}"))
    return {}


converts = True


def converted(request):
    """The response to a ConversionReview: v1 has a host, v2 a list of hosts."""
    if not converts:
        return {"result": {"status": "Failure", "message": "not today"}}
    version, objects = request["desiredAPIVersion"], []
    for item in request["objects"]:
        spec = item["spec"]
        spec = {"hosts": spec["host"].split(",")} if version.endswith("v2") else {"host": ",".join(spec["hosts"])}
        objects.append({**item, "apiVersion": version, "spec": spec})
    return {"convertedObjects": objects, "result": {"status": "Success"}}


ANSWERS = {"/label": label, "/refuse": refuse, "/slow": slow, "/panics": panics, "/causes": causes, "/allow": lambda _: {}}


class Webhooks(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path = self.path.partition("?")[0]
        asked.append((path, review["request"]))
        if path == "/nonsense":
            answer = b"<html>"
        else:
            made = converted(review["request"]) if path == "/convert" else {"allowed": True, **ANSWERS[path](review["request"])}
            response = {"uid": review["request"]["uid"], **made}
            answer = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # a webhook that panics closes its connection


def certificate(name):
    key, cert = pathlib.Path(f"{name}.key"), pathlib.Path(f"{name}.crt")
    names = "subjectAltName=IP:127.0.0.1,DNS:hooks.default.svc"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    subprocess.run([*command, "-addext", names, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return key, cert


def configmap(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"team": "hooks"}), data=data)


def create(name, **data):
    return core.create_namespaced_config_map("default", configmap(name, **data))


def refused(name, code, *texts, **data):
    try:
        create(name, **data)
    except ApiException as error:
        message = json.loads(error.body)["message"]
        assert error.status == code and all(text in message for text in texts), (error.status, message)
        return
    raise AssertionError(f"{name} was created")


key, cert = certificate("hooks")
_, other = certificate("other")
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
server = Server(("127.0.0.1", 0), Webhooks)
server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
encoded = lambda path: base64.b64encode(path.read_bytes()).decode()


class Configured:
    """A configuration with one webhook, as long as the block runs."""

    def __init__(self, kind, path, policy="Fail", bundle=cert, url=None, **more):
        where = {"service": more.pop("service")} if "service" in more else {"url": url or f"https://127.0.0.1:{server.server_port}{path}"}
        rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
        hook = {"name": "python.hooks.example.com", "clientConfig": {**where, "caBundle": encoded(bundle)}, "rules": rules}
        hook |= {"admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": policy, **more}
        hook["objectSelector"] = {"matchLabels": {"team": "hooks"}}
        self.kind, self.body = kind, {"metadata": {"name": "python"}, "webhooks": [hook]}

    def __enter__(self):
        getattr(admission, f"create_{self.kind}_webhook_configuration")(self.body)

    def __exit__(self, *_):
        getattr(admission, f"delete_{self.kind}_webhook_configuration")("python")


# One that changes, and one that refuses.
with Configured("mutating", "/label"):
    assert create("labelled").metadata.labels == {"team": "hooks", "seen-by": "python"}
    path, request = asked[-1]
    assert path == "/label" and request["operation"] == "CREATE" and request["object"]["metadata"]["name"] == "labelled", request
    dry = core.create_namespaced_config_map("default", configmap("dry"), dry_run="All")
    assert dry.metadata.labels["seen-by"] == "python" and asked[-1][1]["dryRun"] is True
with Configured("validating", "/refuse"):
    create("fine", plain="x")
    refused("unfit", 403, 'admission webhook "python.hooks.example.com" denied the request: no secrets in ConfigMaps', secret="x")
# Without a configuration nobody is asked: it counts at once.
count = len(asked)
create("free", secret="x")
assert len(asked) == count

# Those that fail, by either policy.
failures = [
    ("slow", {"timeout_seconds": 1}, "context deadline exceeded"),
    ("panics", {}, "EOF"),
    ("nonsense", {}, "couldn't get version/kind; json parse error"),
    ("certificate", {"bundle": other}, "x509: certificate signed by unknown authority"),
    ("nobody", {"url": "https://127.0.0.1:1/x"}, "connect: connection refused"),
    ("service", {"service": {"namespace": "default", "name": "none", "path": "/x"}}, 'service "none" not found'),
]
for kind in ("mutating", "validating"):
    for name, how, text in failures:
        how = {"timeoutSeconds" if key == "timeout_seconds" else key: value for key, value in how.items()}
        path = f"/{name}" if name in ("slow", "panics", "nonsense") else "/allow"
        with Configured(kind, path, "Fail", **how):
            refused(f"{kind}-{name}", 500, 'failed calling webhook "python.hooks.example.com"', text)
        with Configured(kind, path, "Ignore", **how):
            create(f"{kind}-{name}")

# One behind a Service without an address: its endpoints say where it is.
service = client.V1Service(metadata={"name": "hooks"}, spec={"clusterIP": "None", "ports": [{"port": 443, "targetPort": server.server_port}]})
core.create_namespaced_service("default", service)
slices = client.DiscoveryV1Api()
endpoints = {"metadata": {"name": "hooks-1", "labels": {"kubernetes.io/service-name": "hooks"}}, "addressType": "IPv4"}
endpoints |= {"endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"port": server.server_port}]}
slices.create_namespaced_endpoint_slice("default", endpoints)
with Configured("mutating", "", service={"namespace": "default", "name": "hooks", "path": "/label"}):
    assert create("by-service").metadata.labels["seen-by"] == "python"

# One that is the cause of the object that it is asked about.
with Configured("validating", "/causes"):
    create("first")
    assert core.read_namespaced_config_map("caused-first", "default").metadata.name == "caused-first"

# One that converts custom resources, behind the same Service.
definitions, sites = client.ApiextensionsV1Api(), client.CustomObjectsApi()
fields = {"v1": {"host": {"type": "string"}}, "v2": {"hosts": {"type": "array", "items": {"type": "string"}}}}
versions = []
for version, properties in fields.items():
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    versions.append({"name": version, "served": True, "storage": version == "v1", "schema": {"openAPIV3Schema": schema}})
converting = {"service": {"namespace": "default", "name": "hooks", "path": "/convert"}, "caBundle": encoded(cert)}
conversion = {"strategy": "Webhook", "webhook": {"clientConfig": converting, "conversionReviewVersions": ["v1"]}}
names = {"plural": "sites", "singular": "site", "kind": "Site"}
definition = {"metadata": {"name": "sites.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions, "conversion": conversion}}
definitions.create_custom_resource_definition(definition)
for event in watch.Watch().stream(definitions.list_custom_resource_definition, timeout_seconds=30):
    conditions = {one.type: one.status for one in event["object"].status.conditions or []}
    if conditions.get("Established") == "True":
        break


def of(version):
    return "example.com", version, "default", "sites"


for number in range(20):
    site = {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": f"s{number}"}, "spec": {"host": "a,b"}}
    sites.create_namespaced_custom_object(*of("v1"), site)
assert all(site["spec"] == {"hosts": ["a", "b"]} for site in sites.list_namespaced_custom_object(*of("v2"))["items"])
calls = [request for path, request in asked if path == "/convert"]
assert len(calls) == 1 and len(calls[0]["objects"]) == 20, [len(call["objects"]) for call in calls]
written = sites.patch_namespaced_custom_object(*of("v2"), "s1", {"spec": {"hosts": ["c"]}})
assert written["spec"] == {"hosts": ["c"]} and written["apiVersion"] == "example.com/v2", written
assert sites.get_namespaced_custom_object(*of("v1"), "s1")["spec"] == {"host": "c"}
converts = False
try:
    sites.get_namespaced_custom_object(*of("v2"), "s1")
    raise AssertionError("it was converted")
except ApiException as error:
    assert error.status == 500 and "conversion webhook for example.com/v1, Kind=Site failed: not today" in error.body, error
assert sites.get_namespaced_custom_object(*of("v1"), "s1")["spec"] == {"host": "c"}
converts = True
assert sites.get_namespaced_custom_object(*of("v2"), "s1")["spec"] == {"hosts": ["c"]}

print("the Python webhooks are at home")
