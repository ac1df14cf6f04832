// An application on Fast DDS 3.2: `foreign writer|reader DOMAIN keyed|keyless typed|bare FILE READERS`. `make foreign`
// compiles it with the headers and libraries of the package ros-fastdds.
//
// It speaks the lines of tests/integration/programs.py. The type is that of tests/integration/untyped.py, a
// struct with one 32-bit number; `typed` announces type information. TRANSIENT, reliable, KEEP_ALL, loopback only.
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/log/Log.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/Topic.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>
#include <fastdds/dds/xtypes/dynamic_types/DynamicPubSubType.hpp>
#include <fastdds/dds/xtypes/dynamic_types/DynamicTypeBuilder.hpp>
#include <fastdds/dds/xtypes/dynamic_types/DynamicTypeBuilderFactory.hpp>
#include <fastdds/dds/xtypes/dynamic_types/MemberDescriptor.hpp>
#include <fastdds/dds/xtypes/dynamic_types/TypeDescriptor.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.hpp>
#include <fastdds/utils/IPLocator.hpp>

#include <unistd.h>

#include <cstring>
#include <iostream>
#include <string>

using namespace eprosima::fastdds::dds;
using namespace eprosima::fastdds::rtps;

// The same struct as XTypes describes it.
static DynamicType::_ref_type described(bool keyed)
{
  auto factory = DynamicTypeBuilderFactory::get_instance();
  auto type = traits<TypeDescriptor>::make_shared();
  type->kind(TK_STRUCTURE);
  type->name(keyed ? "bare::Keyed" : "bare::Keyless");
  type->extensibility_kind(ExtensibilityKind::FINAL);
  auto member = traits<MemberDescriptor>::make_shared();
  member->name("number");
  member->type(factory->get_primitive_type(TK_UINT32));
  member->is_key(keyed);
  auto builder = factory->create_type(type);
  builder->add_member(member);
  return builder->build();
}

class Number : public TopicDataType {
public:
  Number(bool keyed, bool typed) : is_typed(typed), is_keyed(keyed)
  {
    set_name(keyed ? "bare::Keyed" : "bare::Keyless");
    max_serialized_type_size = 8;
    is_compute_key_provided = keyed;
  }

  bool serialize(const void *number, SerializedPayload_t &payload, DataRepresentationId_t) override
  {
    const uint8_t header[4] = {0, 1, 0, 0};
    memcpy(payload.data, header, 4);
    memcpy(payload.data + 4, number, 4);
    payload.length = 8;
    payload.encapsulation = CDR_LE;
    return true;
  }

  bool deserialize(SerializedPayload_t &payload, void *number) override
  {
    memcpy(number, payload.data + 4, 4);
    return payload.length == 8;
  }

  bool compute_key(const void *number, InstanceHandle_t &handle, bool) override
  {
    uint32_t value;
    memcpy(&value, number, 4);
    for (int i = 0; i < 16; i++)
      handle.value[i] = i < 4 ? uint8_t(value >> (24 - 8 * i)) : 0;
    return true;
  }

  bool compute_key(SerializedPayload_t &payload, InstanceHandle_t &handle, bool md5) override
  {
    return compute_key(payload.data + 4, handle, md5);
  }

  void register_type_object_representation() override
  {
    if (is_typed) {
      DynamicPubSubType dynamic(described(is_keyed));
      dynamic.register_type_object_representation();
      type_identifiers_ = dynamic.type_identifiers();
    }
  }

  uint32_t calculate_serialized_size(const void *, DataRepresentationId_t) override { return 8; }
  void *create_data() override { return new uint32_t(0); }
  void delete_data(void *number) override { delete static_cast<uint32_t *>(number); }

private:
  const bool is_typed, is_keyed;
};

// The network settings of the other programs: unicast on loopback.
static DomainParticipantQos on_loopback(int domain, const std::string &file)
{
  DomainParticipantQos qos = PARTICIPANT_QOS_DEFAULT;
  auto transport = std::make_shared<UDPv4TransportDescriptor>();
  transport->interfaceWhiteList.push_back("127.0.0.1");
  qos.transport().use_builtin_transports = false;
  qos.transport().user_transports.push_back(transport);
  for (int participant = 0; participant < 40; participant++) {
    Locator_t peer;
    IPLocator::setIPv4(peer, 127, 0, 0, 1);
    peer.port = 7410 + 250 * domain + 2 * participant;
    qos.wire_protocol().builtin.initialPeersList.push_back(peer);
  }
  qos.wire_protocol().builtin.discovery_config.leaseDuration_announcementperiod = {0, 500000000};
  // It makes no TRANSIENT writers and readers without a place to keep what it needs itself after a restart.
  qos.properties().properties().emplace_back("dds.persistence.plugin", "builtin.SQLITE3");
  qos.properties().properties().emplace_back("dds.persistence.sqlite3.filename", file);
  return qos;
}

static const char *const PLACE = "66.6f.72.65.69.67.6e.5f.61.70.70.5f|67.75.69.64";

template <class Qos> static Qos durable(Qos qos)
{
  qos.durability().kind = TRANSIENT_DURABILITY_QOS;
  qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
  qos.history().kind = KEEP_ALL_HISTORY_QOS;
  qos.properties().properties().emplace_back("dds.persistence.guid", PLACE);
  return qos;
}

// Each line makes it write the next number, once this number of readers matches.
static void write(DomainParticipant *participant, Topic *topic, int readers)
{
  DataWriterQos qos = durable(DATAWRITER_QOS_DEFAULT);
  qos.writer_data_lifecycle().autodispose_unregistered_instances = false;
  DataWriter *writer = participant->create_publisher(PUBLISHER_QOS_DEFAULT)->create_datawriter(topic, qos);
  if (writer)
    std::cout << "{\"ready\": true}" << std::endl;
  std::string line;
  for (uint32_t number = 0; std::getline(std::cin, line); number++) {
    for (PublicationMatchedStatus matched; matched.current_count < readers; usleep(10000))
      writer->get_publication_matched_status(matched);
    writer->write(&number);
    writer->wait_for_acknowledgments({10, 0});
    std::cout << "{\"wrote\": " << number << "}" << std::endl;
  }
}

// Each line is answered with the numbers that it got so far.
static void read(DomainParticipant *participant, Topic *topic)
{
  DataReaderQos qos = durable(DATAREADER_QOS_DEFAULT);
  DataReader *reader = participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT)->create_datareader(topic, qos);
  std::cout << "{\"ready\": true}" << std::endl;
  std::string line, numbers;
  while (std::getline(std::cin, line)) {
    uint32_t number;
    SampleInfo info;
    while (reader->take_next_sample(&number, &info) == RETCODE_OK)
      if (info.valid_data)
        numbers += (numbers.empty() ? "" : ", ") + std::to_string(number);
    std::cout << "{\"numbers\": [" << numbers << "]}" << std::endl;
  }
}

int main(int, char **arguments)
{
  const std::string role = arguments[1], key = arguments[3];
  const int domain = std::stoi(arguments[2]);
  Log::ClearConsumers();  // they write to standard output
  auto *factory = DomainParticipantFactory::get_instance();
  DomainParticipant *participant = factory->create_participant(domain, on_loopback(domain, arguments[5]));
  TypeSupport type(new Number(key == "keyed", std::string(arguments[4]) == "typed"));
  type.register_type(participant);
  Topic *topic = participant->create_topic("Bare", type.get_type_name(), TOPIC_QOS_DEFAULT);
  role == "writer" ? write(participant, topic, std::stoi(arguments[6])) : read(participant, topic);
  participant->delete_contained_entities();
  factory->delete_participant(participant);
}
