"""Figures to a Markdown table."""
import statistics


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def spread(values):
    """Median with the lowest and the highest."""
    return f"{figure(median(values))} ({figure(min(values))}–{figure(max(values))})"


def figure(value):
    """Three digits."""
    if value is None:
        return ""
    for least, digits in ((100, 0), (10, 1), (1, 2)):
        if abs(value) >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.3f}"


def of_cases(cases):
    """A row per side; a ratio above 1 says that ours is faster."""
    rows = ["| work | side | seconds, median (least–most) | rate | processor, s | peak, MiB | time / ours | peak / ours |",
            "|---|---|---|---|---|---|---|---|"]
    for case in cases:
        if not case["unit"]:
            continue
        ours = next(iter(case["sides"].values()), None)
        for name, side in case["sides"].items():
            if "failed" in side:
                rows.append(f"| {case['name']} | {name} | {side['failed'].splitlines()[0][:160]} | | | | | |")
                continue
            middle = median(side["seconds"])
            rate = f"{figure(side['work'] / middle)} {case['unit']}" if side.get("work") else ""
            ratios = ["", ""]
            if ours is not side and "failed" not in ours:
                # Where sides do other amounts of the same work, rates are compared.
                scale = ours["work"] / side["work"] if side.get("work") and ours.get("work") else 1
                ratios[0] = f"{middle * scale / median(ours['seconds']):.2f}"
                if side.get("peak_mib") and ours.get("peak_mib"):
                    ratios[1] = f"{side['peak_mib'] / ours['peak_mib']:.2f}"
            rows.append(f"| {case['name']} | {name} | {spread(side['seconds'])} | {rate} | "
                        f"{figure(median(side['processor']))} | {figure(side.get('peak_mib'))} | {ratios[0]} | {ratios[1]} |")
    checks = [f"- {case['name']}: {case['agreement']}" for case in cases if case["agreement"]]
    return "\n".join([*rows, "", *checks]) + "\n"
