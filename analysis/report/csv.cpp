// SPDX-License-Identifier: MIT
// report.csv: the layers table, one row per lane and site. Fields are quoted as in RFC 4180. The
// columns about errors are those of the first comparison of the lane; empty without one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/export/csv_field.h"
#include "analysis/report/report.h"

namespace halfscope {
namespace {

std::string field(const std::optional<double>& value) {
  if (!value) return "";  // not measured
  if (std::isnan(*value)) return "nan";
  return fmt::format("{}", *value);
}

const SiteErrorReport* error_of(const Report& report, int lane, int site) {
  for (const ErrorReport& errors : report.errors) {
    if (errors.lane != lane) continue;
    const auto place =
        std::lower_bound(errors.sites.begin(), errors.sites.end(), site,
                         [](const SiteErrorReport& each, int order) { return each.site < order; });
    return place != errors.sites.end() && place->site == site ? &*place : nullptr;
  }
  return nullptr;
}

}  // namespace

std::string report_csv(const Report& report) {
  std::string csv =
      "lane,path,op,read,write,parameters,site,role,format,n,zero,overflow,underflow,subnormal,"
      "non_finite,lost,max_abs,min_abs,rms,headroom_bits,headroom_down_bits,error_total,error_"
      "local,"
      "error_inherited,max_ulps\n";
  for (const LayerReport& layer : report.layers) {
    const std::string head = fmt::format(
        "{},{},{},{},{},{}", csv_field(report.lanes[static_cast<size_t>(layer.lane)].name),
        csv_field(layer.path), csv_field(layer.op), format_name(layer.read),
        format_name(layer.write), layer.parameters);
    for (const SiteReport& site : layer.sites) {
      csv +=
          fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},", head,
                      csv_field(site.name), role_name(site.role), format_name(site.format), site.n,
                      site.zero, site.overflow, site.underflow, site.subnormal, site.non_finite(),
                      site.lost, field(site.max_abs), field(site.min_abs), field(site.rms),
                      field(site.headroom_bits), field(site.headroom_down_bits));
      const SiteErrorReport* error = error_of(report, layer.lane, site.order);
      csv += error == nullptr ? ",,,\n"
                              : fmt::format("{},{},{},{}\n", field(error->total),
                                            field(error->local()), field(error->inherited),
                                            field(std::optional<double>(error->max_ulps)));
    }
  }
  return csv;
}

}  // namespace halfscope
