// The fabric for people: lines of a terminal, and an SVG.
#include <fmt/format.h>

#include <algorithm>

#include "lab/topology.h"

namespace metaroce::lab {

namespace {

std::string hosts_of(const Plan& plan, uint32_t leaf) {
  std::string out;
  for (uint32_t h = leaf; h < plan.topology.hosts; h += plan.topology.leaves) {
    out += fmt::format("{}h{}", out.empty() ? "" : " ", h);
  }
  return out;
}

void box(std::string& out, double x, double y, double width, const char* colour,
         const std::string& text) {
  out += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"20\" rx=\"4\" fill=\"{}\"/>\n"
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
      x - width / 2, y - 10, width, colour, x, y + 4, text);
}

void line(std::string& out, double x1, double y1, double x2, double y2) {
  out += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", x1, y1,
                     x2, y2);
}

}  // namespace

std::string draw_text(const Plan& plan) {
  const Topology& t = plan.topology;
  std::string out = fmt::format(
      "{}: {} plane{} x ({} leaves, {} spines), {} hosts with an interface in each plane\n", t.name,
      t.planes, t.planes == 1 ? "" : "s", t.leaves, t.spines, t.hosts);
  for (uint32_t p = 0; p < t.planes; ++p) {
    std::string spines;
    for (uint32_t s = 0; s < t.spines; ++s) spines += fmt::format(" p{}s{}", p, s);
    out += fmt::format("\nplane{}  spines{}\n        each leaf has a cable to each spine\n", p,
                       spines);
    for (uint32_t l = 0; l < t.leaves; ++l) {
      out += fmt::format("        p{}l{} - {}\n", p, l, hosts_of(plan, l));
    }
  }
  out += "\naddresses\n";
  for (uint32_t h = 0; h < t.hosts; ++h) {
    out += fmt::format("  h{:<3}", h);
    for (uint32_t p = 0; p < t.planes; ++p) {
      const End& end = plan.host_cable(p, h).a;
      out += fmt::format(" {}", t.ipv4 ? end.v4 : end.v6);
    }
    out += "\n";
  }
  return out;
}

std::string draw_svg(const Plan& plan) {
  const Topology& t = plan.topology;
  const double host_gap = 46, width = std::max(8.0, t.hosts + 1.0) * host_gap;
  const double plane_height = 170, hosts_y = 60 + plane_height * t.planes;
  const auto at = [width](uint32_t i, uint32_t n) { return width * (i + 0.5) / n; };
  // Hosts behind one leaf stand side by side.
  std::vector<double> host_x(t.hosts);
  uint32_t place = 0;
  for (uint32_t l = 0; l < t.leaves; ++l) {
    for (uint32_t h = l; h < t.hosts; h += t.leaves) host_x[h] = at(place++, t.hosts);
  }
  std::string lines, boxes;
  for (uint32_t p = 0; p < t.planes; ++p) {
    const double spine_y = 30 + plane_height * p, leaf_y = spine_y + 70;
    for (uint32_t l = 0; l < t.leaves; ++l) {
      for (uint32_t s = 0; s < t.spines; ++s) {
        line(lines, at(l, t.leaves), leaf_y, at(s, t.spines), spine_y);
      }
      box(boxes, at(l, t.leaves), leaf_y, 44, "#cfe8cf", fmt::format("p{}l{}", p, l));
    }
    for (uint32_t s = 0; s < t.spines; ++s) {
      box(boxes, at(s, t.spines), spine_y, 44, "#cfd8f0", fmt::format("p{}s{}", p, s));
    }
    for (uint32_t h = 0; h < t.hosts; ++h) {
      line(lines, at(plan.leaf_of(h), t.leaves), leaf_y, host_x[h], hosts_y);
    }
  }
  for (uint32_t h = 0; h < t.hosts; ++h)
    box(boxes, host_x[h], hosts_y, 40, "#f4e3c1", plan.nodes[h].name);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" font-size=\"11\" "
      "font-family=\"sans-serif\">\n<title>{2}</title>\n<g stroke=\"#999\" stroke-width=\"0.7\">\n"
      "{3}</g>\n{4}</svg>\n",
      width, hosts_y + 30, t.name, lines, boxes);
}

}  // namespace metaroce::lab
