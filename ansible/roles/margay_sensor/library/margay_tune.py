#!/usr/bin/python
"""Tunes a sensor with `margay tune`; supports check mode and diff."""

from __future__ import annotations

import json
import os

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: margay_tune
short_description: Tune card, interrupts, CPUs and kernel of a sensor
description:
  - Plans and applies by C(margay tune), which journals old values, and gives everything back unless it is confirmed.
options:
  state:
    description:
      - C(planned) only says what is to be changed.
      - C(applied) applies it, and leaves the watchdog to wait for C(confirmed).
      - C(confirmed) confirms what waits for that.
      - C(undone) gives everything back that is still as it was written.
    choices: [planned, applied, confirmed, undone]
    default: applied
    type: str
  program:
    description: The program on the sensor.
    default: /usr/bin/margay
    type: path
  interfaces:
    description: Interfaces that the sensor reads from; inline two by two.
    default: []
    type: list
    elements: str
  mode:
    description: Whether packets are looked at or wait for the verdict.
    choices: [passive, inline]
    default: passive
    type: str
  rate:
    description: Traffic of all interfaces together, as C(10gbit).
    default: ""
    type: str
  leave:
    description: CPUs that are left to others.
    default: ""
    type: str
  workers:
    description: Most workers; 0 for as many as the rate needs.
    default: 0
    type: int
  memory:
    description: Memory that the engine may use.
    default: ""
    type: str
  without:
    description: Steps that are left out.
    default: []
    type: list
    elements: str
  force:
    description: Tune interfaces that are named even where somebody needs them.
    default: false
    type: bool
  persist:
    description: Write files of its own, so that it is the same after a restart.
    default: false
    type: bool
  confirm_within:
    description: Time to confirm before everything is given back.
    default: 120s
    type: str
  measure:
    description: Measure losses before applying for so long.
    default: ""
    type: str
author:
  - The Margay project
"""

RETURN = r"""
steps:
  description: What is to be changed, or was; each step as C(margay tune plan --json) tells it.
  returned: planned, applied
  type: list
  elements: dict
advice:
  description: What is left to people.
  returned: planned, applied
  type: list
  elements: str
reboot:
  description: Whether a step has effect after the machine's next start.
  returned: planned, applied
  type: bool
restart:
  description: Whether a step has effect after the engine's next start.
  returned: planned, applied
  type: bool
"""

EXAMPLES = r"""
- name: Say what is to be changed
  margay_tune:
    state: planned
    interfaces: [eth1]
    rate: 10gbit
"""


def goal(params):
    """The arguments that describe the goal to `margay tune`."""
    words = ["--for", params["mode"]]
    for name in ("rate", "leave", "memory"):
        if params[name]:
            words += [f"--{name}", params[name]]
    if params["workers"]:
        words += ["--workers", str(params["workers"])]
    for step in params["without"]:
        words += ["--without", step]
    for name in ("force", "persist"):
        if params[name]:
            words.append(f"--{name}")
    return words + params["interfaces"]


def run(module, words):
    """Runs `margay tune`, and fails the module if that fails."""
    code, out, err = module.run_command([module.params["program"], "tune", *words])
    if code != 0:
        module.fail_json(msg=err.strip() or out.strip(), rc=code, stdout=out, stderr=err)
    return out


def planned(module):
    """The module's result for the plan, with the settings as a diff."""
    plan = json.loads(run(module, ["plan", "--json", *goal(module.params)]))
    settings = [s for step in plan["steps"] for s in step["settings"] if s["changes"]]

    def lines(which):
        return "".join(f"{s['setting']}: {'not there' if s[which] is None else s[which]}\n" for s in settings)

    return {
        "changed": bool(settings),
        "diff": {"before_header": "as it is", "after_header": "as planned", "before": lines("is"), "after": lines("want")},
        "steps": plan["steps"],
        "advice": [advice["what"] for advice in plan["advice"]],
        "notes": plan["notes"],
        "reboot": any(step["reboot"] for step in plan["steps"]),
        "restart": any(step["restart"] for step in plan["steps"]),
    }


def sections(module):
    """The sections of the journal of applied settings."""
    return json.loads(run(module, ["status", "--json"]))["sections"]


def main():
    """Runs the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"choices": ["planned", "applied", "confirmed", "undone"], "default": "applied"},
            "program": {"type": "path", "default": "/usr/bin/margay"},
            "interfaces": {"type": "list", "elements": "str", "default": []},
            "mode": {"choices": ["passive", "inline"], "default": "passive"},
            "rate": {"default": ""},
            "leave": {"default": ""},
            "workers": {"type": "int", "default": 0},
            "memory": {"default": ""},
            "without": {"type": "list", "elements": "str", "default": []},
            "force": {"type": "bool", "default": False},
            "persist": {"type": "bool", "default": False},
            "confirm_within": {"default": "120s"},
            "measure": {"default": ""},
        },
        supports_check_mode=True,
    )
    state = module.params["state"]
    if module.check_mode and not os.path.exists(module.params["program"]):
        module.exit_json(
            changed=True, msg="the program is not installed yet", steps=[], advice=[], notes=[], reboot=False, restart=False
        )
    if state in ("planned", "applied"):
        result = planned(module)
        if state == "applied" and result["changed"] and not module.check_mode:
            words = ["apply", "--yes", "--confirm-within", module.params["confirm_within"], *goal(module.params)]
            if module.params["measure"]:
                words += ["--measure", module.params["measure"]]
            result["stdout"] = run(module, words)
        module.exit_json(**result)
    if state == "confirmed":
        waits = any(section["waits"] for section in sections(module))
        out = run(module, ["confirm"]) if waits and not module.check_mode else ""
        module.exit_json(changed=waits, stdout=out)
    there = [s for s in sections(module) if s["left"] is None and not s["state"].startswith("gone")]
    out = run(module, ["undo"]) if there and not module.check_mode else ""
    module.exit_json(changed=bool(there), stdout=out)


if __name__ == "__main__":
    main()
