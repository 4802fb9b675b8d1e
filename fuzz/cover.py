#!/usr/bin/env python3
"""Line coverage of the engine's folders under the fuzz corpora alone.

usage: fuzz/cover.py [--build FOLDER] [--missing] [CORPUS ...]

Builds the fuzz targets with clang source coverage into FOLDER (build/fuzz-cover), replays
fuzz/corpus, what ./dev fuzz found (build/fuzz/corpus) and each CORPUS, a folder that holds one
folder a target. Exit code 1 when a folder is below its bar.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BARS = {"src/wire": 85, "src/connection": 85, "src/path": 85, "src/message": 85}


def tool(name):
    return shutil.which(f"{name}-14") or shutil.which(name) or sys.exit(f"{name} is missing")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/fuzz-cover")
    parser.add_argument("--missing", action="store_true", help="name the lines never reached")
    parser.add_argument("corpora", nargs="*", type=pathlib.Path, metavar="CORPUS")
    options = parser.parse_args()
    build = options.build.resolve()
    targets = sorted(p.stem for p in (ROOT / "fuzz").glob("*_fuzz.cpp"))
    flags = "-O1 -g -fprofile-instr-generate -fcoverage-mapping"
    configure = ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja",
                 "-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++",
                 "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_CXX_FLAGS_DEBUG={flags}",
                 "-DMR_DASSERT=ON", "-DMR_BENCH=OFF"]
    if shutil.which("ccache"):
        configure.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", str(build), "-j2", *targets], check=True,
                   stdout=subprocess.DEVNULL)
    profiles, programs = [], []
    for target in targets:
        program = build / "bin" / target
        corpora = [d / target for d in (ROOT / "fuzz/corpus", ROOT / "build/fuzz/corpus",
                                        *options.corpora)]
        profile = build / f"{target}.profraw"
        subprocess.run([program, *(d for d in corpora if d.is_dir())], check=True,
                       env={"LLVM_PROFILE_FILE": str(profile), "PATH": "/usr/bin:/bin"})
        profiles.append(profile)
        programs += ["-object", program]
    data = build / "fuzz.profdata"
    subprocess.run([tool("llvm-profdata"), "merge", "-o", data, *profiles], check=True)
    report = subprocess.run([tool("llvm-cov"), "export", f"-instr-profile={data}", *programs[1:]],
                            check=True, capture_output=True, text=True)
    return show(json.loads(report.stdout)["data"][0]["files"], options.missing)


def show(files, missing):
    sums = {}
    for file in files:
        name = pathlib.Path(file["filename"])
        if not name.is_relative_to(ROOT / "src"):
            continue
        lines = file["summary"]["lines"]
        folder = str(name.parent.relative_to(ROOT))
        total = sums.setdefault(folder, [0, 0])
        total[0] += lines["covered"]
        total[1] += lines["count"]
        if missing and folder in BARS and lines["covered"] < lines["count"]:
            never = sorted({s[0] for s in file["segments"] if s[3] and s[4] and s[2] == 0})
            print(f"{name.relative_to(ROOT)}: from lines {' '.join(map(str, never))}")
    low = 0
    for folder, (covered, count) in sorted(sums.items()):
        percent = 100 * covered / max(count, 1)
        bar = BARS.get(folder)
        low += bar is not None and percent < bar
        print(f"{folder:20} {covered:5} of {count:5} lines  {percent:5.1f} %"
              f"{'' if bar is None else f'  (bar {bar} %)'}")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
