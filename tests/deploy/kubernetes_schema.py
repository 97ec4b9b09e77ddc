# SPDX-License-Identifier: Apache-2.0
"""The parts of the Kubernetes and compose schemas that deploy/ uses; a field that is not here is refused as unknown.

Field names and types are those of the published APIs: v1, apps/v1, networking.k8s.io/v1, policy/v1, monitoring.coreos.com/v1 and the
compose specification.
"""

import re
from typing import Annotated, Literal, Union

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def _quantity(value):
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?(m|[kMGTPE]i?)?", value):
        raise ValueError(f"{value!r} is not a quantity")
    return value


def _name(value):
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", value):
        raise ValueError(f"{value!r} is not a DNS-1123 name")
    return value


def _path(value):
    if not value.startswith("/"):
        raise ValueError(f"{value!r} is not absolute")
    return value


Quantity = Annotated[str, AfterValidator(_quantity)]
Name = Annotated[str, AfterValidator(_name)]
Path = Annotated[str, AfterValidator(_path)]
Labels = dict[str, str]


class Metadata(Strict):
    name: Name
    labels: Labels = {}


class Selector(Strict):
    matchLabels: Labels


class ConfigMap(Strict):
    apiVersion: Literal["v1"]
    kind: Literal["ConfigMap"]
    metadata: Metadata
    data: dict[str, str]


class Requests(Strict):
    requests: dict[str, Quantity]


class ClaimSpec(Strict):
    accessModes: list[Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]]
    resources: Requests


class Claim(Strict):
    apiVersion: Literal["v1"]
    kind: Literal["PersistentVolumeClaim"]
    metadata: Metadata
    spec: ClaimSpec


class Port(Strict):
    name: Annotated[str, Field(max_length=15)]
    containerPort: Annotated[int, Field(ge=1, le=65535)]


class Capabilities(Strict):
    drop: list[str]


class ContainerSecurity(Strict):
    allowPrivilegeEscalation: bool
    readOnlyRootFilesystem: bool
    capabilities: Capabilities


class Resources(Strict):
    requests: dict[str, Quantity]
    limits: dict[str, Quantity]


class HttpGet(Strict):
    path: Path
    port: Union[str, int]


class Probe(Strict):
    httpGet: HttpGet
    periodSeconds: int = 10
    timeoutSeconds: int = 1
    failureThreshold: int = 3


class Mount(Strict):
    name: Name
    mountPath: Path
    subPath: str = ""
    readOnly: bool = False


class Container(Strict):
    name: Name
    image: str
    ports: list[Port]
    securityContext: ContainerSecurity
    resources: Resources
    startupProbe: Probe
    livenessProbe: Probe
    readinessProbe: Probe
    volumeMounts: list[Mount]


class ConfigMapSource(Strict):
    name: Name


class ClaimSource(Strict):
    claimName: Name


class EmptyDir(Strict):
    medium: Literal["", "Memory"] = ""
    sizeLimit: Quantity


class Volume(Strict):
    name: Name
    configMap: ConfigMapSource | None = None
    persistentVolumeClaim: ClaimSource | None = None
    emptyDir: EmptyDir | None = None


class Seccomp(Strict):
    type: Literal["RuntimeDefault", "Localhost", "Unconfined"]


class PodSecurity(Strict):
    runAsNonRoot: bool
    runAsUser: int
    runAsGroup: int
    fsGroup: int
    seccompProfile: Seccomp


class PodSpec(Strict):
    runtimeClassName: Name
    automountServiceAccountToken: bool
    terminationGracePeriodSeconds: int
    securityContext: PodSecurity
    containers: list[Container]
    volumes: list[Volume]


class TemplateMetadata(Strict):
    labels: Labels


class Template(Strict):
    metadata: TemplateMetadata
    spec: PodSpec


class Strategy(Strict):
    type: Literal["Recreate", "RollingUpdate"]


class DeploymentSpec(Strict):
    replicas: int
    strategy: Strategy
    selector: Selector
    template: Template


class Deployment(Strict):
    apiVersion: Literal["apps/v1"]
    kind: Literal["Deployment"]
    metadata: Metadata
    spec: DeploymentSpec


class PolicyPort(Strict):
    protocol: Literal["TCP", "UDP", "SCTP"]
    port: int


class Rule(Strict):
    ports: list[PolicyPort]


class NetworkPolicySpec(Strict):
    podSelector: Selector
    policyTypes: list[Literal["Ingress", "Egress"]]
    ingress: list[Rule]
    egress: list[Rule]


class NetworkPolicy(Strict):
    apiVersion: Literal["networking.k8s.io/v1"]
    kind: Literal["NetworkPolicy"]
    metadata: Metadata
    spec: NetworkPolicySpec


class DisruptionSpec(Strict):
    maxUnavailable: int
    selector: Selector


class Disruption(Strict):
    apiVersion: Literal["policy/v1"]
    kind: Literal["PodDisruptionBudget"]
    metadata: Metadata
    spec: DisruptionSpec


class Endpoint(Strict):
    port: str
    path: Path
    interval: str
    honorLabels: bool = False


class PodMonitorSpec(Strict):
    selector: Selector
    podMetricsEndpoints: list[Endpoint]


class PodMonitor(Strict):
    apiVersion: Literal["monitoring.coreos.com/v1"]
    kind: Literal["PodMonitor"]
    metadata: Metadata
    spec: PodMonitorSpec


KINDS = {model.model_fields["kind"].annotation.__args__[0]: model
         for model in (ConfigMap, Claim, Deployment, NetworkPolicy, Disruption, PodMonitor)}


class Build(Strict):
    context: str
    dockerfile: str


class GpuDevice(Strict):
    driver: str
    count: Union[Literal["all"], int]
    capabilities: list[str]


class Reservations(Strict):
    devices: list[GpuDevice]


class DeployResources(Strict):
    reservations: Reservations


class ComposeDeploy(Strict):
    resources: DeployResources


class Service(Strict):
    build: Build | None = None
    image: str
    restart: Literal["no", "always", "on-failure", "unless-stopped"]
    read_only: bool = False
    cap_drop: list[str] = []
    security_opt: list[str] = []
    tmpfs: list[Path] = []
    shm_size: str = ""
    ulimits: dict[str, int] = {}
    stop_grace_period: str = ""
    volumes: list[str] = []
    ports: list[str] = []
    depends_on: list[str] = []
    deploy: ComposeDeploy | None = None


class Compose(Strict):
    services: dict[str, Service]
    volumes: dict[str, dict]
